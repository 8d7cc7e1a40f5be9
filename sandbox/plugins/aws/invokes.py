"""The functions of the provider that the program calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox.plugins.aws.cloud import Cloud
from sandbox.plugins.aws.props import Prop, State


@dataclass(frozen=True)
class Invoke:
    """One function: what it accepts and how it is answered."""

    token: str
    inputs: Mapping[str, Prop]
    answer: Callable[[Cloud, State], State]


def _caller(cloud: Cloud, given: State) -> State:
    answer = cloud("sts:GetCallerIdentity")
    account = answer["Account"]
    return {"id": account, "accountId": account, "arn": answer["Arn"], "userId": answer["UserId"]}


INVOKES = {
    each.token: each
    for each in [
        Invoke("aws:index/getCallerIdentity:getCallerIdentity", {}, _caller),
    ]
}
