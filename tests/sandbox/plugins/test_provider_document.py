"""The page that tells what the AWS stand-in knows is the one that its tables make."""

from sandbox.plugins.aws.document import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `python -m sandbox.plugins.aws.document`"
