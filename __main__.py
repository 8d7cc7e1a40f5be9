"""From an empty AWS account to a trained PaddlePaddle model: read the settings, create the components, export."""

import pulumi

from infra.bucket import Bucket, BucketArgs
from infra.cluster import Cluster, ClusterArgs
from infra.dns import Dns, DnsArgs
from infra.encryption import Encryption, EncryptionArgs
from infra.job_roles import JobRoles, JobRolesArgs
from infra.network import Network, NetworkArgs
from infra.notifications import Notifications, NotificationsArgs
from infra.provider import aws_provider
from infra.storage import Storage, StorageArgs
from settings.checked import checked
from workloads.data_job import DataJob, DataJobArgs
from workloads.export_job import ExportJob, ExportJobArgs
from workloads.gpu_plugin import GpuPlugin, GpuPluginArgs
from workloads.image_pull import ImagePull, ImagePullArgs
from workloads.in_pod.contract import DATA_JOB, EXPORT_JOB
from workloads.namespace import Namespace
from workloads.next_steps import next_steps
from workloads.training_job import TrainingJob, TrainingJobArgs
from workloads.volume import CLAIM, Volume, VolumeArgs

settings, provider, facts = checked(aws_provider)

on_aws = pulumi.ResourceOptions(providers=[provider])
network = Network("network", NetworkArgs(settings, facts), on_aws)
encryption = Encryption("encryption", EncryptionArgs(settings, facts), on_aws)
bucket = Bucket("bucket", BucketArgs(settings, encryption), on_aws)
cluster = Cluster("cluster", ClusterArgs(settings, facts, network, encryption), on_aws)
storage = Storage("storage", StorageArgs(settings, facts, network, encryption, cluster), on_aws)
dns = Dns("dns", DnsArgs(settings, network, cluster, storage), on_aws)
notifications: Notifications | None = None
if settings.notify.email:
    notifications = Notifications("notifications", NotificationsArgs(settings, facts, encryption), on_aws)
roles = JobRoles("job-roles", JobRolesArgs(settings, facts, encryption, bucket, cluster, notifications), on_aws)


def in_cluster(former_name: str) -> pulumi.ResourceOptions:
    """Options of a component in the cluster, with its name in earlier versions."""
    return pulumi.ResourceOptions(providers=[cluster.kubernetes], aliases=[pulumi.Alias(name=former_name)])


namespace = Namespace("namespace", settings.job.namespace, pulumi.ResourceOptions(providers=[cluster.kubernetes]))
if settings.job.gpus_per_trainer:
    GpuPlugin("nvidia-device-plugin", GpuPluginArgs(settings.job.gpu_plugin_image), in_cluster("gpu-plugin"))
if settings.pulls_image_early:
    ImagePull("paddle-image-pull", ImagePullArgs(settings, namespace), in_cluster("image-pull"))
volume = Volume(CLAIM, VolumeArgs(settings, storage, namespace), in_cluster("volume"))
data = DataJob(DATA_JOB, DataJobArgs(settings, facts, roles, namespace, volume), in_cluster("data"))
training = TrainingJob(
    "paddle-trainer", TrainingJobArgs(settings, facts, namespace, volume, data), in_cluster("training")
)
model: pulumi.Output[str] = pulumi.Output.concat(storage.file_system.id, ":/", settings.job.output_prefix)
if roles.export:
    model = pulumi.Output.concat("s3://", bucket.bucket.bucket, "/", settings.job.output_prefix)
    export = ExportJobArgs(settings, roles.export, notifications, namespace, volume, training, model)
    ExportJob(EXPORT_JOB, export, in_cluster("export"))

pulumi.export("region", settings.region)
pulumi.export("clusterName", cluster.cluster.name)
pulumi.export("clusterEndpoint", cluster.cluster.endpoint)
pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("fileSystemId", storage.file_system.id)
pulumi.export("fileSystemName", storage.file_system.dns_name)
pulumi.export("bucket", bucket.bucket.bucket)
pulumi.export("keyArn", encryption.key_arn)
pulumi.export("zoneId", dns.zone.zone_id)
pulumi.export("model", model)
pulumi.export("nextSteps", next_steps(settings, model))
