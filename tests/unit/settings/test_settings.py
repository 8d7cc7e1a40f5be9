"""Every check with an invalid value and the exact message that a person reads."""

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks

from settings.checks import check
from settings.checks.jobs import CODE_BYTES
from settings.schema import Declared, camel, code_files, declared, read
from settings.secure import Stored, config_in, stored
from tests.unit.conftest import RunStack
from tests.unit.program import PROJECT, Aws, run, stack_files
from workloads.scripts import with_imports

CASES = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text())


def refusal(program: RunStack, changes: Mapping[str, Any], **how: Any) -> list[str]:
    """The problems that the program reports, one on each line."""
    with pytest.raises(pulumi.RunError) as caught:
        program(changes, **how)
    first, *problems = str(caught.value).splitlines()
    assert first == "Stack dev has invalid settings. Nothing was created in AWS."
    return [problem.strip() for problem in problems]


@pytest.mark.parametrize("case", [case for case in CASES if "message" in case], ids=lambda case: str(case)[:80])
def test_an_invalid_setting_is_reported(program: RunStack, case: dict[str, Any]) -> None:
    (problem,) = refusal(program, case.get("given", {}), **answers(case))
    message = case["message"]
    assert problem == message or (message.endswith(":") and problem.startswith(message))


@pytest.mark.parametrize("case", [case for case in CASES if "message" not in case], ids=lambda case: str(case)[:80])
def test_valid_settings_are_used(program: RunStack, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    shown: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda message, *_: shown.append(message))
    graph = program(case.get("given"), case.get("stack", "dev"), **answers(case))
    assert shown == case.get("warnings", [])
    zones = [graph.named(f"subnet-{i}").inputs["availabilityZone"] for i in range(2)]
    assert "zones" not in case or zones == case["zones"].split()


def answers(case: Mapping[str, Any]) -> dict[str, Aws]:
    region = case.get("given", {}).get("aws:region") or "us-west-2"
    return {"aws": Aws(region, **case["aws"])} if "aws" in case else {}


def test_a_stack_file_tells_which_values_are_encrypted(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    assert stored(config_in(file)) == Stored()
    file.write_text("encryptedkey: abc\n")
    assert stored(config_in(file)) == Stored()
    config = {"p:data": {"source": [{"secure": "v1:a"}, "open"], "records": 3}, "p:data.image": {"secure": "v1:b"}}
    file.write_text(yaml.safe_dump({"config": {**config, "aws:token": {"secure": "v1:c"}}}))
    found = stored(config_in(file))
    assert found == Stored(frozenset({"open", "3"}), frozenset({"data.source[0]", "data.image", "token"}))
    assert found.shows("open")
    assert not found.shows("v1:a")


def test_an_address_in_json_text_is_not_a_secret(program: RunStack) -> None:
    """`pulumi config set data.source '[...]'` stores the list as one text."""
    plain = '["https://host/b?X-Amz-Signature=hush"]'
    _, problem = refusal(program, {"data.source": plain, "data.image": {"secure": "mine/split:1"}})
    assert problem.startswith('data.source[0]: "[secret]" has a query string')


def test_without_the_stack_file_the_engine_alone_tells_what_is_secret() -> None:
    """With `--config-file`, the settings come from another file."""
    signed = "https://host/a?X-Amz-Signature=hush"
    settings = dataclasses.replace(read({})[0], secrets=frozenset({"data"}))
    assert settings.is_secret(signed)
    assert not dataclasses.replace(settings, stored=Stored(plain=frozenset({signed}))).is_secret(signed)
    assert not dataclasses.replace(settings, secrets=frozenset()).is_secret(signed)


def test_a_key_with_a_dot_replaces_the_default_that_pulumi_adds_to_the_map(program: RunStack) -> None:
    (problem,) = refusal(program, {"workers.count": "4", "trainers": 5})
    assert problem.startswith("trainers: 5 is more than the 4 workers")


def test_a_key_with_a_dot_is_a_path() -> None:
    settings, problems = read({"job.code": "my_model", "job": {"passes": 7}, "workers.count": "4", "tags.team": "ml"})
    assert problems == []
    assert (settings.job.code, settings.job.passes, settings.workers.count) == ("my_model", 7, 4)
    assert settings.tags == {"team": "ml"}


def test_only_the_provider_is_registered_if_a_setting_is_invalid(
    program: RunStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[str] = []

    class Recording(Aws):
        def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
            registered.append(args.typ)
            return super().new_resource(args)

    refusal(program, {"trainers": 0}, aws=Recording())
    assert registered == ["pulumi:providers:aws"]
    registered.clear()
    with pytest.raises(pulumi.RunError, match="is not an option of the AWS provider"):
        run(monkeypatch, {"aws:region": "us-west-2", "aws:regoin": "x"}, aws=Recording())
    assert registered == [], "the provider cannot be configured with these options"


def test_all_problems_are_reported_together(program: RunStack) -> None:
    changes = {"trainers": "x", "vpcCidr": "8.8.0.0/16", "trainer": 1, "availabilityZones": ["us-west-2a", "nowhere"]}
    reported = refusal(program, changes)
    assert [line.partition(":")[0] for line in reported] == ["trainers", "trainer", "vpcCidr", "availabilityZones"]


def test_others_can_preview_the_stack_of_the_deployer(program: RunStack) -> None:
    program({"deployer": "arn:aws:iam::123456789012:role/ci"}, preview=True)


def test_an_aws_that_does_not_answer_is_reported(program: RunStack) -> None:
    reported = refusal(program, {"trainers": 0}, aws=Aws(refuse="getCallerIdentity"))
    assert reported[0] == "trainers: 0 is too small. Write 1 or more."
    assert reported[1].startswith('aws:region: "us-west-2" could not be checked with AWS: ')
    assert "ExpiredToken: the token has expired" in reported[1]


class OverlappingAws(Aws):
    """Answers the first call only after three more calls have arrived."""

    arrived = 0
    changed = threading.Condition()

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        with self.changed:
            self.arrived += 1
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.arrived > 3, timeout=30), "the calls run one after the other"
        return super().call(args)


def test_aws_is_asked_about_the_region_side_by_side(program: RunStack) -> None:
    program({}, aws=OverlappingAws())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("big.txt", b"x" * CODE_BYTES, f"only {CODE_BYTES} fit into the ConfigMap"),
        ("image.bin", b"\xff\xfe\x00", "contains image.bin, which is not UTF-8 text"),
    ],
)
def test_code_that_does_not_fit_into_a_config_map_is_reported(
    tmp_path: Path, program: RunStack, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / name).write_bytes(content)
    reported = refusal(program, {"job": {"code": str(tmp_path)}})
    assert len(reported) == 1
    assert message in reported[0]
    assert "docs/training-code.md shows how" in reported[0]


def test_hidden_files_and_caches_are_not_training_code(tmp_path: Path) -> None:
    for path in ("train.py", "lib/model.py", "__pycache__/train.pyc", "lib/.hidden", ".git/config"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
    settings, _ = read({"job": {"code": str(tmp_path)}})
    assert list(code_files(settings.job)) == ["lib/model.py", "train.py"]


def test_the_scripts_of_the_data_job_fit_next_to_the_code() -> None:
    shipped = with_imports("prepare.py").values()
    assert sum(path.stat().st_size for path in shipped) <= 1024 * 1024 - CODE_BYTES


def test_every_default_is_valid() -> None:
    settings, problems = read({})
    assert not problems
    with_region = dataclasses.replace(settings, aws={"region": "us-west-2"})
    assert check(with_region) == []


def test_every_setting_is_described_and_every_description_is_a_setting() -> None:
    """`read` fails if a setting is not declared, so this test checks the other direction."""
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())
    assert all(entry["description"] for entry in project["config"].values())

    def keys(cls: Any, path: str = "") -> set[str]:
        found = set[str]()
        for name, hint in get_type_hints(cls).items():
            key = path + camel(name)
            found |= keys(hint, key + ".") if dataclasses.is_dataclass(hint) else {key}
        return found

    assert keys(Declared) == set(declared())


def test_numbers_and_flags_may_come_as_text() -> None:
    """Pulumi passes top-level values as text, and `pulumi config set` stores text."""
    settings, problems = read({"trainers": "2", "retainData": "true", "admins": '["a"]', "workers": '{"count": "2"}'})
    assert not problems
    assert (settings.trainers, settings.retain_data, settings.admins, settings.workers.count) == (2, True, ("a",), 2)


@pytest.mark.parametrize("stack", stack_files())
def test_a_stack_file_contains_only_what_differs(stack: str) -> None:
    text = yaml.safe_load((PROJECT / f"Pulumi.{stack}.yaml").read_text())["config"]
    defaults = declared()
    for key, value in text.items():
        name = key.removeprefix("paddle-on-aws:")
        leaves = {f"{name}.{leaf}": v for leaf, v in value.items()} if isinstance(value, dict) else {name: value}
        assert not {leaf for leaf, v in leaves.items() if defaults.get(leaf, ...) == v}, f"{stack} repeats a default"
