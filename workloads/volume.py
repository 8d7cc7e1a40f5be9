"""The tutorial's volume and claim, bound to each other and to the file system."""

import pulumi
import pulumi_kubernetes as k8s

from infra.storage import Storage
from settings.schema import Settings

NAME = "efsvol"
POD_VOLUME = "efs"
NFS_OPTIONS = ("nfsvers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2")


class Volume(pulumi.ComponentResource):
    """`claim_name` is known once the claim is bound: who mounts it comes after, and is replaced along with it."""

    claim_name: pulumi.Output[str]
    pod_volume: k8s.core.v1.VolumeArgsDict

    def __init__(
        self, settings: Settings, storage: Storage, namespace: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("paddle:workloads:Volume", "volume", None, opts)
        file_system = storage.file_system
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
        volume = k8s.core.v1.PersistentVolume(
            "efsvol",
            metadata={"name": NAME},
            spec={
                "capacity": {"storage": f"{settings.storage.size_gib}Gi"},
                "access_modes": ["ReadWriteMany"],
                "persistent_volume_reclaim_policy": "Retain",
                "storage_class_name": "",
                **source,
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                # No mount works before every mount target stands, nor unmounts after one is gone.
                depends_on=storage.ready,
                # A retained volume never binds again, so a claim in another namespace needs a new one.
                replacement_trigger=namespace,
            ),
        )
        claim = k8s.core.v1.PersistentVolumeClaim(
            "efsvol-claim",
            metadata={"name": NAME, "namespace": namespace},
            spec={
                "access_modes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": f"{settings.storage.claim_gib}Gi"}},
                "storage_class_name": "",
                "volume_name": volume.metadata["name"],
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.claim_name = claim.metadata["name"]
        self.pod_volume = {"name": POD_VOLUME, "persistent_volume_claim": {"claim_name": self.claim_name}}
        self.register_outputs({"claim_name": self.claim_name})
