"""The functions (invokes) of the provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, gone, only, plain
from sandbox.plugins.aws.props import REQUIRED, Prop, blocks, mapping, text, texts
from sandbox.plugins.aws.rows import Checked
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State
from settings.aws_errors import NO_RESOURCE, NO_SUBNET


@dataclass(frozen=True)
class Invoke:
    """One function: its inputs, and the AWS calls that answer it with the outputs that the program reads."""

    token: str
    inputs: Mapping[str, Prop]
    answer: Callable[[Cloud, Checked], State]


def _caller(cloud: Cloud, given: Checked) -> State:
    answer = cloud("sts:GetCallerIdentity")
    return {"accountId": answer["Account"], "arn": answer["Arn"]}


def _partition(cloud: Cloud, given: Checked) -> State:
    name, suffix = cloud.partition()
    return {"partition": name, "dnsSuffix": suffix}


def _zones(cloud: Cloud, given: Checked) -> State:
    found = cloud("ec2:DescribeAvailabilityZones", Filters=_filters(given))["AvailabilityZones"]
    pairs = sorted((str(each["ZoneName"]), str(each["ZoneId"])) for each in found)
    return {"names": [name for name, _ in pairs], "zoneIds": [identity for _, identity in pairs]}


def _filters(given: Checked) -> list[dict[str, Any]]:
    return [{"Name": each["name"], "Values": each["values"]} for each in given.get("filters") or []]


def _parameter(cloud: Cloud, given: Checked) -> State:
    name = given["name"]
    given = {"Name": name, "WithDecryption": True}
    found = _existing(lambda: cloud("ssm:GetParameter", **given)["Parameter"], f"reading SSM Parameter ({name})")
    return {"name": name, "type": found["Type"], "insecureValue": found["Value"]}


def _offerings(cloud: Cloud, given: Checked) -> State:
    asked = {"Filters": _filters(given), "LocationType": given["locationType"]}
    found = list(cloud.pages("ec2:DescribeInstanceTypeOfferings", "InstanceTypeOfferings", **asked))
    return {
        "instanceTypes": [each["InstanceType"] for each in found],
        "locations": [each["Location"] for each in found],
    }


def _subnet(cloud: Cloud, given: Checked) -> State:
    wanted = {"cidrBlock": given["cidrBlock"], **{f"tag:{key}": value for key, value in given.get("tags", {}).items()}}
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    found = list(cloud.pages("ec2:DescribeSubnets", "Subnets", Filters=filters))
    if len(found) != 1:
        raise ProviderError("multiple EC2 Subnets found" if found else NO_SUBNET)
    return {"id": found[0]["SubnetId"], "availabilityZone": found[0]["AvailabilityZone"]}


def _quota(cloud: Cloud, given: Checked) -> State:
    """A quota has a current value only if the account has another value than the default one."""
    asked = {"ServiceCode": given["serviceCode"], "QuotaCode": given["quotaCode"]}
    default = cloud("servicequotas:GetAWSDefaultServiceQuota", **asked)["Quota"]
    current = _found(lambda: cloud("servicequotas:GetServiceQuota", **asked)["Quota"]) or default
    return {"quotaName": default["QuotaName"], "value": current["Value"]}


def _session_context(cloud: Cloud, given: Checked) -> State:
    """The role of a session. The ARN of a session has the name of the role, but not its path."""
    arn = given["arn"]
    if ":sts:" not in arn or ":assumed-role/" not in arn:
        return {"issuerArn": arn}
    name = arn.split("/")[1]
    role = _existing(lambda: cloud("iam:GetRole", RoleName=name)["Role"], f"unable to get role ({name})")
    return {"issuerArn": role["Arn"]}


def _role(cloud: Cloud, given: Checked) -> State:
    name = given["name"]
    return {"arn": _existing(lambda: cloud("iam:GetRole", RoleName=name)["Role"], f"reading IAM Role ({name})")["Arn"]}


def _user(cloud: Cloud, given: Checked) -> State:
    name = given["userName"]
    return {"arn": _existing(lambda: cloud("iam:GetUser", UserName=name)["User"], f"reading IAM User ({name})")["Arn"]}


def _key(cloud: Cloud, given: Checked) -> State:
    identity = given["keyId"]
    found = _existing(lambda: cloud("kms:DescribeKey", KeyId=identity), f"reading KMS Key ({identity})")
    answered = plain(found["KeyMetadata"])
    return {name: answered[name] for name in ("arn", "keyManager", "keySpec", "keyState", "keyUsage")}


def _access_entry(cloud: Cloud, given: Checked) -> State:
    what = f"reading EKS Access Entry ({given['clusterName']}:{given['principalArn']})"
    entry = _existing(lambda: cloud("eks:DescribeAccessEntry", **given)["accessEntry"], what)
    return {"tags": entry.get("tags") or {}}


def _existing(ask: Callable[[], Any], what: str) -> Any:
    """The answer. The official provider replaces AWS's error for a missing resource with this text."""
    answer = _found(ask)
    if answer is None:
        raise ProviderError(f"{what}: {NO_RESOURCE}")
    return answer


def _found(ask: Callable[[], Any]) -> Any:
    """The answer, or None if the resource does not exist."""
    try:
        return ask()
    except ClientError as error:
        if not gone(error):
            raise
        return None


def _log_groups(cloud: Cloud, given: Checked) -> State:
    found = cloud.pages("logs:DescribeLogGroups", "logGroups", **given)
    return {"logGroupNames": [each["logGroupName"] for each in found]}


def _instance_type(cloud: Cloud, given: Checked) -> State:
    kind = only(cloud("ec2:DescribeInstanceTypes", InstanceTypes=[given["instanceType"]])["InstanceTypes"])
    gpus = kind.get("GpuInfo", {}).get("Gpus", [])
    return {
        "defaultVcpus": kind["VCpuInfo"]["DefaultVCpus"],
        "memorySize": kind["MemoryInfo"]["SizeInMiB"],
        "supportedArchitectures": kind["ProcessorInfo"]["SupportedArchitectures"],
        "gpuses": [{"count": each["Count"], "manufacturer": each["Manufacturer"]} for each in gpus],
    }


def _addon_version(cloud: Cloud, given: Checked) -> State:
    """The default version of an add-on for a Kubernetes version."""
    addons = cloud.pages("eks:DescribeAddonVersions", "addons", **given)
    for version in (each for addon in addons for each in addon["addonVersions"]):
        if any(fits["defaultVersion"] for fits in version["compatibilities"]):
            return {"version": version["addonVersion"]}
    kubernetes = given["kubernetesVersion"]
    raise ProviderError(f"no version of add-on {given['addonName']} for Kubernetes {kubernetes} was found")


FILTERS = {"filters": blocks({"name": text(REQUIRED), "values": texts(REQUIRED)})}


def _required(*names: str) -> Mapping[str, Prop]:
    return dict.fromkeys(names, text(REQUIRED))


INVOKES = {
    each.token: each
    for each in [
        Invoke("aws:cloudwatch/getLogGroups:getLogGroups", {"logGroupNamePrefix": text()}, _log_groups),
        Invoke("aws:ec2/getInstanceType:getInstanceType", _required("instanceType"), _instance_type),
        Invoke(
            "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings",
            {**FILTERS, "locationType": text(REQUIRED)},
            _offerings,
        ),
        Invoke("aws:ec2/getSubnet:getSubnet", {"cidrBlock": text(REQUIRED), "tags": mapping()}, _subnet),
        Invoke("aws:eks/getAccessEntry:getAccessEntry", _required("clusterName", "principalArn"), _access_entry),
        Invoke("aws:eks/getAddonVersion:getAddonVersion", _required("addonName", "kubernetesVersion"), _addon_version),
        Invoke("aws:iam/getRole:getRole", _required("name"), _role),
        Invoke("aws:iam/getSessionContext:getSessionContext", _required("arn"), _session_context),
        Invoke("aws:iam/getUser:getUser", _required("userName"), _user),
        Invoke("aws:index/getAvailabilityZones:getAvailabilityZones", FILTERS, _zones),
        Invoke("aws:index/getCallerIdentity:getCallerIdentity", {}, _caller),
        Invoke("aws:index/getPartition:getPartition", {}, _partition),
        Invoke("aws:kms/getKey:getKey", _required("keyId"), _key),
        Invoke("aws:servicequotas/getServiceQuota:getServiceQuota", _required("quotaCode", "serviceCode"), _quota),
        Invoke("aws:ssm/getParameter:getParameter", _required("name"), _parameter),
    ]
}
