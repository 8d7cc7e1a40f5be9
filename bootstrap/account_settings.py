"""What the bootstrap program reads from Pulumi.account.yaml, checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from bootstrap.policies import STACK_NAME
from settings.problem import Problem
from settings.schema import Settings
from settings.stack_file import StackFileError, stack_settings

KEYS = ("deployers", "ownerId", "repository", "repositoryId", "stacks")
IDENTITY = re.compile(r"arn:[\w-]+:iam::(?P<account>\d{12}):(?P<kind>role|user)/([\w+=,.@-]+/)*(?P<name>[\w+=,.@-]+)")


@dataclass(frozen=True)
class Identity:
    """An IAM role or user that exists already."""

    arn: str
    account: str
    kind: str
    name: str


@dataclass(frozen=True)
class Repository:
    """A GitHub repository. Its numbers stay the same if somebody else gets its name."""

    name: str
    number: str
    owner_number: str

    def subjects(self, job: str) -> list[str]:
        """Both forms of the OIDC subject of a job: repositories created before and after 15 July 2026."""
        owner, _, name = self.name.partition("/")
        return [f"repo:{owner}/{name}:{job}", f"repo:{owner}@{self.owner_number}/{name}@{self.number}:{job}"]


@dataclass(frozen=True)
class AccountSettings:
    """The settings of the bootstrap program. `repository` is None if GitHub deploys nothing."""

    repository: Repository | None = None
    stacks: Mapping[str, Settings] = field(default_factory=dict)
    deployers: Mapping[str, tuple[Identity, ...]] = field(default_factory=dict)


def read_account_settings() -> AccountSettings:
    """The settings, or an error of one line."""
    config = pulumi.Config()
    for key in pulumi.runtime.get_config_env():
        namespace, _, name = key.partition(":")
        if namespace == pulumi.get_project() and name not in KEYS:
            raise _error(name, config.get(name), "is not a setting of this program", f"Write one of {', '.join(KEYS)}")
    repository = _repository(config) if config.get("repository") else None
    stacks = _stacks(config.get_object("stacks"))
    return AccountSettings(repository, stacks, _deployers(config.get_object("deployers"), stacks))


def _repository(config: pulumi.Config) -> Repository:
    name = config.require("repository")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise _error("repository", name, "is not OWNER/NAME", "Write for example octo/paddle")
    numbers = {key: config.get(key) or "" for key in ("repositoryId", "ownerId")}
    for key, query in (("repositoryId", ".id"), ("ownerId", ".owner.id")):
        if not re.fullmatch(r"\d+", numbers[key]):
            instead = f"Write the number that `gh api repos/{name} --jq {query}` prints"
            raise _error(key, numbers[key], "is not the number of the repository or its owner", instead)
    return Repository(name, numbers["repositoryId"], numbers["ownerId"])


def _stacks(given: Any) -> dict[str, Settings]:
    named = isinstance(given, list) and all(isinstance(name, str) and STACK_NAME.fullmatch(name) for name in given)
    if not given or not named:
        instead = "Write at least one name, such as [dev], with up to 40 lower-case letters, digits and -"
        raise _error("stacks", given, "is not a list of stack names", instead)
    try:
        return {name: stack_settings(name) for name in given}
    except StackFileError as error:
        raise pulumi.RunError(f"stacks: {error}") from None


def _deployers(given: Any, stacks: Mapping[str, Settings]) -> dict[str, tuple[Identity, ...]]:
    if not isinstance(given or {}, Mapping):
        raise _error("deployers", given, "is not a map of stacks to lists of ARNs", "Write for example {dev: [ARN]}")
    found = {}
    for stack, arns in (given or {}).items():
        key = f"deployers.{stack}"
        if stack not in stacks:
            raise _error(key, arns, "is for a stack that is not in stacks", f"Write one of {', '.join(stacks)}")
        if not isinstance(arns, list):
            raise _error(key, arns, "is not a list of ARNs", "Write for example [arn:aws:iam::123456789012:role/me]")
        found[stack] = tuple(_identity(f"{key}[{i}]", arn) for i, arn in enumerate(arns))
    return found


def _identity(key: str, arn: Any) -> Identity:
    match = IDENTITY.fullmatch(arn) if isinstance(arn, str) else None
    if not match:
        why = "is not the ARN of an IAM role or user"
        raise _error(key, arn, why, "Write for example arn:aws:iam::123456789012:role/me")
    return Identity(arn, match["account"], match["kind"], match["name"])


def _error(key: str, value: Any, why: str, instead: str) -> pulumi.RunError:
    return pulumi.RunError(str(Problem(key, value, why, instead)))
