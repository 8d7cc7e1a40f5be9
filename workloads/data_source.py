"""The address of the data, as a variable for containers. A secret address is in a Kubernetes Secret."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from settings.schema import Settings
from workloads.in_cluster import object_options
from workloads.in_pod.contract import Env

KEY = "source"


@dataclass(frozen=True)
class DataSourceArgs:
    settings: Settings
    namespace: pulumi.Input[str]


class DataSource(pulumi.ComponentResource):
    """`env` or `secrets` contains the variable."""

    env: Mapping[str, str]
    secrets: Mapping[str, k8s.core.v1.SecretKeySelectorArgsDict]

    def __init__(self, name: str, args: DataSourceArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:DataSource", name, None, opts)
        source = " ".join(args.settings.data.sources)
        self.env, self.secrets = {Env.DATA_SOURCE: source}, {}
        if args.settings.data_is_secret:
            secret = k8s.core.v1.Secret(
                name,
                metadata={"name": f"{name}-{digest(source)}", "namespace": args.namespace},
                data={KEY: pulumi.Output.secret(base64.b64encode(source.encode()).decode())},
                immutable=True,
                opts=object_options(self),
            )
            self.env, self.secrets = {}, {Env.DATA_SOURCE: {"name": secret.metadata["name"], "key": KEY}}
        self.register_outputs({})


def digest(secret: str) -> str:
    """A changed secret changes the name of its object, and so replaces the Job."""
    # A slow hash: everybody can read the name, and must not find a short secret by trying.
    return hashlib.scrypt(secret.encode(), salt=b"paddle-on-aws", n=2**14, r=8, p=1, dklen=5).hex()
