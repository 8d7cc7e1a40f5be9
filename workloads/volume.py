"""The Kubernetes volume and claim for the file system, with the names that the tutorial uses."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.storage import Storage
from settings.schema import Settings
from workloads.job import Mount, object_options
from workloads.namespace import Namespace

# The name of the volume and of its claim is the tutorial's.
CLAIM, POD_VOLUME = "efsvol", "efs"
# AWS recommends noresvport: without it, a client that reconnects can hang.
NFS_OPTIONS = ("nfsvers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport")


@dataclass(frozen=True)
class VolumeArgs:
    settings: Settings
    storage: Storage
    namespace: Namespace


class Volume(pulumi.ComponentResource):
    """`claim_name` is known when the claim is bound. A pod that uses it is replaced together with the claim."""

    claim_name: pulumi.Output[str]

    def __init__(self, name: str, args: VolumeArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:Volume", name, None, opts)
        storage, file_system, sizes = args.storage, args.storage.file_system, args.settings.storage
        source: k8s.core.v1.PersistentVolumeSpecArgsDict = (
            {
                "csi": {
                    "driver": "efs.csi.aws.com",
                    "volume_handle": pulumi.Output.concat(file_system.id, "::", storage.access_point.id),
                }
            }
            if storage.access_point
            else {"nfs": {"server": file_system.dns_name, "path": "/"}, "mount_options": NFS_OPTIONS}
        )
        trigger = pulumi.Output.concat(args.namespace.name, " ", str(sizes.claim_gib))
        volume = k8s.core.v1.PersistentVolume(
            name,
            metadata={"name": name},
            spec={
                "capacity": {"storage": f"{sizes.size_gib}Gi"},
                "access_modes": ["ReadWriteMany"],
                "persistent_volume_reclaim_policy": "Retain",
                "storage_class_name": "",
                **source,
            },
            # Pods can mount and unmount only while the mount targets exist.
            opts=pulumi.ResourceOptions.merge(
                object_options(self, storage.ready),
                # A bound claim cannot be changed, and its volume cannot be bound again, so both must be replaced.
                pulumi.ResourceOptions(replacement_trigger=trigger),
            ),
        )
        claim = k8s.core.v1.PersistentVolumeClaim(
            f"{name}-claim",
            metadata={"name": name, "namespace": args.namespace.name},
            spec={
                "access_modes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": f"{sizes.claim_gib}Gi"}},
                "storage_class_name": "",
                "volume_name": volume.metadata["name"],
            },
            opts=object_options(self),
        )
        self.claim_name = claim.metadata["name"]
        self.register_outputs({"claim_name": self.claim_name})

    def mount(self, folder: str, read_only: bool = False) -> Mount:
        """Gives the volume to a container."""
        return Mount(
            {"name": POD_VOLUME, "persistent_volume_claim": {"claim_name": self.claim_name}}, folder, read_only
        )
