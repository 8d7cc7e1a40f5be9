"""The pages about the emulated providers are the ones that the code generates."""

from types import ModuleType

import pytest

from sandbox.plugins.aws import document as aws
from sandbox.plugins.kubernetes import document as kubernetes


@pytest.mark.parametrize("document", [aws, kubernetes], ids=["aws", "kubernetes"])
def test_page_is_up_to_date(document: ModuleType) -> None:
    assert document.PAGE.read_text() == document.page(), f"run `python -m {document.__name__}`"
