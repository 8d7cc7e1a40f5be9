"""From an empty AWS account to a trained PaddlePaddle model, in order."""

import pulumi

from infra.bucket import Bucket
from infra.cluster import Cluster
from infra.dns import Dns
from infra.encryption import Encryption
from infra.job_roles import JobRoles
from infra.network import Network
from infra.provider import aws_provider
from infra.storage import Storage
from settings.checks import checked_settings
from workloads.access import Namespace
from workloads.data_job import DataJob
from workloads.export_job import ExportJob
from workloads.gpu_plugin import GpuPlugin
from workloads.in_cluster import in_cluster
from workloads.next_steps import next_steps
from workloads.training_job import TrainingJob
from workloads.volume import Volume

settings, region_support = checked_settings()

on_aws = pulumi.ResourceOptions(providers=[aws_provider(settings)])
network = Network(settings, region_support.zones_for(settings), on_aws)
encryption = Encryption(settings, region_support, on_aws)
bucket = Bucket(settings, encryption.key, on_aws)
cluster = Cluster(settings, region_support, network, encryption, on_aws)
storage = Storage(settings, region_support, network, encryption, cluster, on_aws)
dns = Dns(settings, network, cluster, storage, on_aws)
roles = JobRoles(settings, region_support, cluster, encryption, bucket, on_aws)

inside = in_cluster(cluster.kubernetes)
namespace = Namespace(settings, inside)
if settings.job.gpus_per_trainer:
    GpuPlugin(inside)
volume = Volume(settings, storage, namespace.name, inside)
data = DataJob(settings, namespace.name, volume, roles.data, inside)
training = TrainingJob(settings, namespace.name, volume, data, inside)
model: pulumi.Output[str] = pulumi.Output.concat(storage.file_system.id, ":/", settings.job.newest_pass)
if roles.export:
    results = pulumi.Output.concat("s3://", bucket.bucket.bucket, "/")
    model = pulumi.Output.concat(results, settings.job.newest_pass)
    destination = pulumi.Output.concat(results, settings.job.output_prefix)
    ExportJob(settings, namespace.name, volume, roles.export, training, destination, inside)

pulumi.export("region", settings.region)
pulumi.export("clusterName", cluster.cluster.name)
pulumi.export("clusterEndpoint", cluster.cluster.endpoint)
pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("fileSystemId", storage.file_system.id)
pulumi.export("fileSystemName", storage.file_system.dns_name)
pulumi.export("bucket", bucket.bucket.bucket)
pulumi.export("keyArn", encryption.key.arn)
pulumi.export("zoneId", dns.zone.zone_id)
pulumi.export("model", model)
pulumi.export("nextSteps", next_steps(settings, model))
