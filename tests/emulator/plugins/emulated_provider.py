"""The engine's requests to a provider, for tests without the engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from sandbox.plugins import wire
from tests.emulator.plugins import sdk_outputs

SECONDS = 10  # the provider's timeout: moto is ready at once


class Refused(Exception):  # noqa: N818
    """A Check with failures; the message is what a user reads."""


@dataclass
class Resource:
    """What the engine stores of a resource."""

    type: str
    name: str
    id: str
    inputs: dict[str, Any]
    state: dict[str, Any]


class Plugin:
    """A running emulated AWS provider."""

    def __init__(self, config: dict[str, Any], environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "sandbox.plugins.aws", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = provider_pb2_grpc.ResourceProviderStub(self.channel)
        try:
            self.stub.Configure(provider_pb2.ConfigureRequest(args=wire.write(config), acceptSecrets=True))
        except grpc.RpcError:
            self.close()
            raise

    def close(self) -> None:
        self.channel.close()
        self.process.terminate()
        self.process.wait(10)

    @staticmethod
    def urn(kind: str, name: str) -> str:
        return f"urn:pulumi:test::test::{kind}::{name}"

    def check(self, kind: str, name: str, inputs: dict[str, Any], olds: dict[str, Any] | None = None) -> dict[str, Any]:
        request = provider_pb2.CheckRequest(
            urn=self.urn(kind, name), olds=wire.write(olds or {}), news=wire.write(inputs), randomSeed=b"seed"
        )
        answer = self.stub.Check(request)
        if answer.failures:
            raise Refused("; ".join(f"{each.property}: {each.reason}" for each in answer.failures))
        return wire.read(answer.inputs)

    def diff(self, resource: Resource, inputs: dict[str, Any], ignore: tuple[str, ...] = ()) -> Any:
        news = self.check(resource.type, resource.name, inputs, resource.inputs)
        return self.stub.Diff(
            provider_pb2.DiffRequest(
                id=resource.id,
                urn=self.urn(resource.type, resource.name),
                olds=wire.write(resource.state),
                news=wire.write(news),
                old_inputs=wire.write(resource.inputs),
                ignoreChanges=list(ignore),
            )
        )

    def changes(self, resource: Resource, inputs: dict[str, Any]) -> dict[str, str]:
        """The detailed differences by path."""
        kinds = provider_pb2.PropertyDiff.Kind
        return {path: kinds.Name(each.kind) for path, each in self.diff(resource, inputs).detailedDiff.items()}

    def create(self, kind: str, name: str, inputs: dict[str, Any], preview: bool = False) -> Resource:
        news = self.check(kind, name, inputs)
        request = provider_pb2.CreateRequest(
            urn=self.urn(kind, name), properties=wire.write(news), timeout=SECONDS, preview=preview
        )
        answer = self.stub.Create(request)
        return Resource(kind, name, answer.id, news, wire.read(answer.properties))

    def update(self, resource: Resource, inputs: dict[str, Any], preview: bool = False) -> Resource:
        news = self.check(resource.type, resource.name, inputs, resource.inputs)
        request = provider_pb2.UpdateRequest(
            id=resource.id,
            urn=self.urn(resource.type, resource.name),
            olds=wire.write(resource.state),
            news=wire.write(news),
            old_inputs=wire.write(resource.inputs),
            timeout=SECONDS,
            preview=preview,
        )
        state = wire.read(self.stub.Update(request).properties)
        return Resource(resource.type, resource.name, resource.id, news, state)

    def read(self, resource: Resource) -> Resource | None:
        request = provider_pb2.ReadRequest(
            id=resource.id,
            urn=self.urn(resource.type, resource.name),
            properties=wire.write(resource.state),
            inputs=wire.write(resource.inputs),
        )
        answer = self.stub.Read(request)
        if not answer.id:
            return None
        state, inputs = wire.read(answer.properties), wire.read(answer.inputs)
        return Resource(resource.type, resource.name, answer.id, inputs, state)

    def imported(self, kind: str, name: str, identity: str) -> Resource | None:
        return self.read(Resource(kind, name, identity, {}, {}))

    def delete(self, resource: Resource) -> None:
        self.begin_delete(resource).result()

    def begin_delete(self, resource: Resource) -> Any:
        """A running deletion, as a future."""
        urn = self.urn(resource.type, resource.name)
        properties = wire.write(resource.state)
        request = provider_pb2.DeleteRequest(id=resource.id, urn=urn, properties=properties, timeout=SECONDS)
        return self.stub.Delete.future(request)

    def cancel(self) -> None:
        self.stub.Cancel(empty_pb2.Empty())

    def invoke(self, token: str, **args: Any) -> dict[str, Any]:
        answer = self.stub.Invoke(provider_pb2.InvokeRequest(tok=token, args=wire.write(args)))
        if answer.failures:
            raise Refused("; ".join(f"{each.property}: {each.reason}" for each in answer.failures))
        returned: struct_pb2.Struct = getattr(answer, "return")
        outputs = wire.read(returned)
        assert outputs.keys() <= sdk_outputs.answers(token)
        return outputs


def unfinished(error: grpc.RpcError) -> provider_pb2.ErrorResourceInitFailed:
    """What the engine stores of a resource after a failed create or update."""
    trailer = dict(error.trailing_metadata())["grpc-status-details-bin"]
    detail = provider_pb2.ErrorResourceInitFailed()
    assert status_pb2.Status.FromString(trailer).details[0].Unpack(detail)
    return detail
