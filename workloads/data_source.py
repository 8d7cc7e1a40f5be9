"""The data source, as variables for containers. If an address is secret, they are in a Kubernetes Secret."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from settings.schema import Settings
from workloads.in_pod import contract
from workloads.in_pod.contract import Env
from workloads.job import Variable, object_options


@dataclass(frozen=True)
class DataSourceArgs:
    settings: Settings
    namespace: pulumi.Input[str]


class DataSource(pulumi.ComponentResource):
    """`env` has DATA_SOURCE for prepare.py, and for data in S3 FETCH_ADDRESS for fetch.sh."""

    env: Mapping[str, Variable]

    def __init__(self, name: str, args: DataSourceArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:DataSource", name, None, opts)
        source = args.settings.data_source
        texts = {Env.DATA_SOURCE: source.to_json()}
        if source.kind == contract.S3:
            # The image of fetch.sh may have no program that reads JSON.
            texts[Env.FETCH_ADDRESS] = source.addresses[0]
        self.env = dict(texts)
        if args.settings.data_is_secret:
            secret = k8s.core.v1.Secret(
                name,
                metadata={"name": f"{name}-{digest(texts[Env.DATA_SOURCE])}", "namespace": args.namespace},
                data={
                    key: pulumi.Output.secret(base64.b64encode(text.encode()).decode()) for key, text in texts.items()
                },
                immutable=True,
                opts=object_options(self),
            )
            self.env = {key: {"secret_key_ref": {"name": secret.metadata["name"], "key": key}} for key in texts}
        self.register_outputs({})


def digest(secret: str) -> str:
    """A changed secret changes the name of its object, and so replaces the Job."""
    # A slow hash: everybody can read the name, and must not find a short secret by trying.
    return hashlib.scrypt(secret.encode(), salt=b"paddle-on-aws", n=2**14, r=8, p=1, dklen=5).hex()
