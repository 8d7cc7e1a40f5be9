"""The functions (invokes) of the provider."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, gone, only, plain, unpaired
from sandbox.plugins.aws.props import REQUIRED, Prop, blocks, flag, mapping, text, texts
from sandbox.plugins.aws.rows import REGION, Checked
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import Secret, State
from settings.aws_errors import NO_RESOURCE, NO_SUBNET


@dataclass(frozen=True)
class Invoke:
    """One function: its inputs, its outputs, and the AWS calls that answer it."""

    token: str
    inputs: Mapping[str, Prop]
    outputs: Sequence[str]
    answer: Callable[[Cloud, State], State]


def _caller(cloud: Cloud, given: Checked) -> State:
    answer = cloud("sts:GetCallerIdentity")
    account = answer["Account"]
    return {"id": account, "accountId": account, "arn": answer["Arn"], "userId": answer["UserId"]}


def _partition(cloud: Cloud, given: Checked) -> State:
    name, suffix = cloud.partition()
    reverse = ".".join(reversed(suffix.split(".")))
    return {"id": name, "partition": name, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def _zones(cloud: Cloud, given: Checked) -> State:
    filters = [{"Name": each["name"], "Values": each["values"]} for each in given.get("filters") or []]
    if given.get("state"):
        filters.append({"Name": "state", "Values": [given["state"]]})
    parameters: dict[str, Any] = {"Filters": filters} if filters else {}
    if given.get("allAvailabilityZones") is not None:
        parameters["AllAvailabilityZones"] = given["allAvailabilityZones"]
    answer = cloud("ec2:DescribeAvailabilityZones", **parameters)["AvailabilityZones"]
    kept = [
        each
        for each in sorted(answer, key=lambda each: str(each["ZoneName"]))
        if each["ZoneName"] not in (given.get("excludeNames") or [])
        and each["ZoneId"] not in (given.get("excludeZoneIds") or [])
    ]
    return {
        **given,
        "id": cloud.region,
        "region": cloud.region,
        "names": [each["ZoneName"] for each in kept],
        "zoneIds": [each["ZoneId"] for each in kept],
        "groupNames": sorted({each.get("GroupName", cloud.region) for each in kept}),
    }


def _parameter(cloud: Cloud, given: Checked) -> State:
    name = given["name"]
    found = _existing(
        lambda: cloud("ssm:GetParameter", Name=name, WithDecryption=given["withDecryption"])["Parameter"],
        f"reading SSM Parameter ({name})",
    )
    return {
        **given,
        "id": name,
        "region": cloud.region,
        "arn": found["ARN"],
        "insecureValue": "" if found["Type"] == "SecureString" else found["Value"],
        "type": found["Type"],
        "value": Secret(found["Value"]),
        "version": found["Version"],
    }


def _offerings(cloud: Cloud, given: Checked) -> State:
    asked = {"Filters": [{"Name": each["name"], "Values": each["values"]} for each in given.get("filters") or []]}
    if given.get("locationType"):
        asked["LocationType"] = given["locationType"]
    found = list(cloud.pages("ec2:DescribeInstanceTypeOfferings", "InstanceTypeOfferings", **asked))
    return {
        **given,
        "id": cloud.region,
        "region": cloud.region,
        "instanceTypes": [each["InstanceType"] for each in found],
        "locations": [each["Location"] for each in found],
        "locationTypes": [each["LocationType"] for each in found],
    }


def _subnet(cloud: Cloud, given: Checked) -> State:
    names = {"cidrBlock": "cidrBlock", "vpcId": "vpc-id", "availabilityZone": "availabilityZone", "state": "state"}
    wanted = {names[key]: given[key] for key in names if given.get(key)}
    wanted |= {f"tag:{key}": value for key, value in (given.get("tags") or {}).items()}
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    filters += [{"Name": each["name"], "Values": each["values"]} for each in given.get("filters") or []]
    asked: dict[str, Any] = {"Filters": filters} if filters else {}
    if given.get("id"):
        asked["SubnetIds"] = [given["id"]]
    found = list(cloud.pages("ec2:DescribeSubnets", "Subnets", **asked))
    if len(found) != 1:
        raise ProviderError("multiple EC2 Subnets found" if found else NO_SUBNET)
    answered = plain(found[0])
    ipv6: Mapping[str, Any] = next(iter(found[0].get("Ipv6CidrBlockAssociationSet") or []), {})
    launch = answered.get("privateDnsNameOptionsOnLaunch", {})
    same = (
        *("assignIpv6AddressOnCreation", "availabilityZone", "availabilityZoneId", "availableIpAddressCount"),
        *("cidrBlock", "defaultForAz", "mapPublicIpOnLaunch", "ownerId", "state", "vpcId"),
    )
    return {
        **{name: answered.get(name) for name in same},
        "id": found[0]["SubnetId"],
        "arn": found[0]["SubnetArn"],
        "customerOwnedIpv4Pool": found[0].get("CustomerOwnedIpv4Pool", ""),
        "enableDns64": found[0].get("EnableDns64", False),
        "enableLniAtDeviceIndex": found[0].get("EnableLniAtDeviceIndex", 0),
        "enableResourceNameDnsAaaaRecordOnLaunch": launch.get("enableResourceNameDnsAAAARecord", False),
        "enableResourceNameDnsARecordOnLaunch": launch.get("enableResourceNameDnsARecord", False),
        "filters": given.get("filters"),
        "ipv6CidrBlock": ipv6.get("Ipv6CidrBlock", ""),
        "ipv6CidrBlockAssociationId": ipv6.get("AssociationId", ""),
        "ipv6Native": found[0].get("Ipv6Native", False),
        "mapCustomerOwnedIpOnLaunch": found[0].get("MapCustomerOwnedIpOnLaunch", False),
        "outpostArn": found[0].get("OutpostArn", ""),
        "privateDnsHostnameTypeOnLaunch": launch.get("hostnameType", ""),
        "region": cloud.region,
        "tags": unpaired(found[0].get("Tags")),
    }


def _quota(cloud: Cloud, given: Checked) -> State:
    """A quota has a current value only if the account has another value than the default one."""
    asked = {"ServiceCode": given["serviceCode"], "QuotaCode": given["quotaCode"]}
    default = cloud("servicequotas:GetAWSDefaultServiceQuota", **asked)["Quota"]
    current = _found(lambda: cloud("servicequotas:GetServiceQuota", **asked)["Quota"]) or default
    return {
        **given,
        "id": default["QuotaArn"],
        "region": cloud.region,
        "adjustable": default["Adjustable"],
        "arn": current["QuotaArn"],
        "defaultValue": default["Value"],
        "globalQuota": default["GlobalQuota"],
        "quotaName": default["QuotaName"],
        "serviceName": default["ServiceName"],
        "usageMetrics": [],
        "value": current["Value"],
    }


def _session_context(cloud: Cloud, given: Checked) -> State:
    """The role of a session. The ARN of a session has the name of the role, but not its path."""
    arn = given["arn"]
    answer = {**given, "id": arn, "issuerArn": arn, "issuerId": "", "issuerName": "", "sessionName": ""}
    if ":sts:" not in arn or ":assumed-role/" not in arn:
        return answer
    _, name, session = arn.split("/")
    role = _existing(lambda: cloud("iam:GetRole", RoleName=name)["Role"], f"unable to get role ({name})")
    return answer | {
        "issuerArn": role["Arn"],
        "issuerId": role["RoleId"],
        "issuerName": name,
        "sessionName": session,
    }


def _role(cloud: Cloud, given: Checked) -> State:
    name = given["name"]
    role = _existing(lambda: cloud("iam:GetRole", RoleName=name)["Role"], f"reading IAM Role ({name})")
    return {
        "id": name,
        "name": name,
        "arn": role["Arn"],
        "assumeRolePolicy": json.dumps(role["AssumeRolePolicyDocument"]),
        "createDate": role["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        "description": role.get("Description", ""),
        "maxSessionDuration": role["MaxSessionDuration"],
        "path": role["Path"],
        "permissionsBoundary": role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", ""),
        "roleLastUseds": [],
        "tags": unpaired(role.get("Tags")),
        "uniqueId": role["RoleId"],
    }


def _user(cloud: Cloud, given: Checked) -> State:
    name = given["userName"]
    user = _existing(lambda: cloud("iam:GetUser", UserName=name)["User"], f"reading IAM User ({name})")
    return {
        "id": user["UserId"],
        "arn": user["Arn"],
        "path": user["Path"],
        "permissionsBoundary": user.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", ""),
        "tags": unpaired(user.get("Tags")),
        "userId": user["UserId"],
        "userName": name,
    }


KEY_ANSWERED = (
    *("arn", "awsAccountId", "creationDate", "description", "enabled", "keyManager", "keySpec", "keyState", "keyUsage"),
    "origin",
)
# Only keys in other key stores, with imported material or before their deletion have these.
KEY_RARE = ("cloudHsmClusterId", "customKeyStoreId", "deletionDate", "expirationModel", "validTo")


def _key(cloud: Cloud, given: Checked) -> State:
    identity = given["keyId"]
    tokens = {"GrantTokens": given["grantTokens"]} if given.get("grantTokens") else {}
    found = _existing(lambda: cloud("kms:DescribeKey", KeyId=identity, **tokens), f"reading KMS Key ({identity})")
    answered = plain(found["KeyMetadata"])
    return {
        **{name: answered[name] for name in KEY_ANSWERED},
        **{name: answered.get(name, "") for name in KEY_RARE},
        **given,
        "id": answered["keyId"],
        "region": cloud.region,
        "customerMasterKeySpec": answered["keySpec"],
        "multiRegion": answered.get("multiRegion", False),
        "multiRegionConfigurations": [],
        "pendingDeletionWindowInDays": 0,
        "xksKeyConfigurations": [],
    }


def _access_entry(cloud: Cloud, given: Checked) -> State:
    where = {"clusterName": given["clusterName"], "principalArn": given["principalArn"]}
    identity = ":".join(where.values())
    entry = _existing(
        lambda: cloud("eks:DescribeAccessEntry", **where)["accessEntry"], f"reading EKS Access Entry ({identity})"
    )
    answered = plain(entry)
    return {
        **where,
        **{name: answered[name] for name in ("accessEntryArn", "createdAt", "kubernetesGroups", "modifiedAt", "type")},
        "id": identity,
        "region": cloud.region,
        "tags": entry.get("tags") or {},
        "tagsAll": entry.get("tags") or {},
        "userName": entry["username"],
    }


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
    prefix = {"logGroupNamePrefix": given["logGroupNamePrefix"]} if given.get("logGroupNamePrefix") else {}
    found = list(cloud.pages("logs:DescribeLogGroups", "logGroups", **prefix))
    return {
        **given,
        "id": cloud.region,
        "region": cloud.region,
        "arns": [each["arn"].removesuffix(":*") for each in found],
        "logGroupNames": [each["logGroupName"] for each in found],
    }


# The SDK's names, their paths in the answer of EC2, and the values that mean "none".
INSTANCE_TYPE: dict[str, tuple[str, Any]] = {
    **{
        name: (name[0].upper() + name[1:], False)
        for name in (
            *("autoRecoverySupported", "bareMetal", "burstablePerformanceSupported", "currentGeneration"),
            *("dedicatedHostsSupported", "freeTierEligible", "hibernationSupported", "instanceStorageSupported"),
        )
    },
    "efaSupported": ("NetworkInfo.EfaSupported", False),
    "enaSrdSupported": ("NetworkInfo.EnaSrdSupported", False),
    "encryptionInTransitSupported": ("NetworkInfo.EncryptionInTransitSupported", False),
    "ipv6Supported": ("NetworkInfo.Ipv6Supported", False),
    "defaultCores": ("VCpuInfo.DefaultCores", 0),
    "defaultNetworkCardIndex": ("NetworkInfo.DefaultNetworkCardIndex", 0),
    "defaultThreadsPerCore": ("VCpuInfo.DefaultThreadsPerCore", 0),
    "defaultVcpus": ("VCpuInfo.DefaultVCpus", 0),
    "ebsPerformanceBaselineBandwidth": ("EbsInfo.EbsOptimizedInfo.BaselineBandwidthInMbps", 0),
    "ebsPerformanceBaselineIops": ("EbsInfo.EbsOptimizedInfo.BaselineIops", 0),
    "ebsPerformanceBaselineThroughput": ("EbsInfo.EbsOptimizedInfo.BaselineThroughputInMBps", 0),
    "ebsPerformanceMaximumBandwidth": ("EbsInfo.EbsOptimizedInfo.MaximumBandwidthInMbps", 0),
    "ebsPerformanceMaximumIops": ("EbsInfo.EbsOptimizedInfo.MaximumIops", 0),
    "ebsPerformanceMaximumThroughput": ("EbsInfo.EbsOptimizedInfo.MaximumThroughputInMBps", 0),
    "efaMaximumInterfaces": ("NetworkInfo.EfaInfo.MaximumEfaInterfaces", 0),
    "maximumIpv4AddressesPerInterface": ("NetworkInfo.Ipv4AddressesPerInterface", 0),
    "maximumIpv6AddressesPerInterface": ("NetworkInfo.Ipv6AddressesPerInterface", 0),
    "maximumNetworkCards": ("NetworkInfo.MaximumNetworkCards", 0),
    "maximumNetworkInterfaces": ("NetworkInfo.MaximumNetworkInterfaces", 0),
    "memorySize": ("MemoryInfo.SizeInMiB", 0),
    "sustainedClockSpeed": ("ProcessorInfo.SustainedClockSpeedInGhz", 0),
    "totalFpgaMemory": ("FpgaInfo.TotalFpgaMemoryInMiB", 0),
    "totalGpuMemory": ("GpuInfo.TotalGpuMemoryInMiB", 0),
    "totalInferenceMemory": ("InferenceAcceleratorInfo.TotalInferenceMemoryInMiB", 0),
    "totalInstanceStorage": ("InstanceStorageInfo.TotalSizeInGB", 0),
    "totalMediaMemory": ("MediaAcceleratorInfo.TotalMediaMemoryInMiB", 0),
    "totalNeuronDeviceMemory": ("NeuronInfo.TotalNeuronDeviceMemoryInMiB", 0),
    "ebsEncryptionSupport": ("EbsInfo.EncryptionSupport", ""),
    "ebsNvmeSupport": ("EbsInfo.NvmeSupport", ""),
    "ebsOptimizedSupport": ("EbsInfo.EbsOptimizedSupport", ""),
    "enaSupport": ("NetworkInfo.EnaSupport", ""),
    "hypervisor": ("Hypervisor", ""),
    "instanceType": ("InstanceType", ""),
    "networkPerformance": ("NetworkInfo.NetworkPerformance", ""),
    "nitroEnclavesSupport": ("NitroEnclavesSupport", ""),
    "nitroTpmSupport": ("NitroTpmSupport", ""),
    "phcSupport": ("PhcSupport", ""),
    "bandwidthWeightings": ("NetworkInfo.BandwidthWeightings", []),
    "bootModes": ("SupportedBootModes", []),
    "nitroTpmSupportedVersions": ("NitroTpmInfo.SupportedVersions", []),
    "supportedArchitectures": ("ProcessorInfo.SupportedArchitectures", []),
    "supportedCpuFeatures": ("ProcessorInfo.SupportedFeatures", []),
    "supportedPlacementStrategies": ("PlacementGroupInfo.SupportedStrategies", []),
    "supportedRootDeviceTypes": ("SupportedRootDeviceTypes", []),
    "supportedUsagesClasses": ("SupportedUsageClasses", []),
    "supportedVirtualizationTypes": ("SupportedVirtualizationTypes", []),
    "validCores": ("VCpuInfo.ValidCores", []),
    "validThreadsPerCores": ("VCpuInfo.ValidThreadsPerCore", []),
}
COUNT = {"count": ("Count", 0)}
DEVICE = COUNT | {"manufacturer": ("Manufacturer", ""), "memorySize": ("MemoryInfo.SizeInMiB", 0), "name": ("Name", "")}
# Lists in the answer: their paths, and the properties of an item.
PARTS: dict[str, tuple[str, dict[str, tuple[str, Any]]]] = {
    "fpgas": ("FpgaInfo.Fpgas", DEVICE),
    "gpuses": ("GpuInfo.Gpus", DEVICE),
    "inferenceAccelerators": ("InferenceAcceleratorInfo.Accelerators", DEVICE),
    "instanceDisks": ("InstanceStorageInfo.Disks", COUNT | {"size": ("SizeInGB", 0), "type": ("Type", "")}),
    "mediaAccelerators": ("MediaAcceleratorInfo.Accelerators", DEVICE),
    "networkCards": (
        "NetworkInfo.NetworkCards",
        {
            "baselineBandwidth": ("BaselineBandwidthInGbps", 0),
            "index": ("NetworkCardIndex", 0),
            "maximumInterfaces": ("MaximumNetworkInterfaces", 0),
            "peakBandwidth": ("PeakBandwidthInGbps", 0),
            "performance": ("NetworkPerformance", ""),
        },
    ),
    "neuronDevices": (
        "NeuronInfo.NeuronDevices",
        COUNT
        | {
            "coreCount": ("CoreInfo.Count", 0),
            "coreVersion": ("CoreInfo.Version", 0),
            "memorySize": ("MemoryInfo.SizeInMiB", 0),
            "name": ("Name", ""),
        },
    ),
}


def _instance_type(cloud: Cloud, given: Checked) -> State:
    kind = only(cloud("ec2:DescribeInstanceTypes", InstanceTypes=[given["instanceType"]])["InstanceTypes"])
    parts = {name: [_values(each, names) for each in _at(kind, path, [])] for name, (path, names) in PARTS.items()}
    return {**_values(kind, INSTANCE_TYPE), **parts, "id": given["instanceType"], "region": cloud.region}


def _values(answer: Mapping[str, Any], names: Mapping[str, tuple[str, Any]]) -> State:
    return {name: _at(answer, path, nothing) for name, (path, nothing) in names.items()}


def _at(answer: Any, path: str, nothing: Any) -> Any:
    for key in path.split("."):
        answer = (answer or {}).get(key)
    return nothing if answer is None else answer


def _addon_version(cloud: Cloud, given: Checked) -> State:
    """The default version of an add-on for a Kubernetes version, or the most recent one."""
    asked = {"addonName": given["addonName"], "kubernetesVersion": given["kubernetesVersion"]}
    found = [each for addon in cloud.pages("eks:DescribeAddonVersions", "addons", **asked) for each in _versions(addon)]
    versions = [name for name, default in found if default or given.get("mostRecent")]
    if not versions:
        raise ProviderError(
            f"no version of add-on {asked['addonName']} for Kubernetes {asked['kubernetesVersion']} was found"
        )
    return {**given, "id": asked["addonName"], "region": cloud.region, "version": versions[0]}


def _versions(addon: Mapping[str, Any]) -> list[tuple[str, bool]]:
    return [
        (each["addonVersion"], any(fits["defaultVersion"] for fits in each["compatibilities"]))
        for each in addon["addonVersions"]
    ]


FILTERS = blocks({"name": text(REQUIRED), "values": texts(REQUIRED)})

INVOKES = {
    each.token: each
    for each in [
        Invoke("aws:index/getCallerIdentity:getCallerIdentity", {}, ["accountId", "arn", "id", "userId"], _caller),
        Invoke(
            "aws:index/getPartition:getPartition",
            {},
            ["dnsSuffix", "id", "partition", "reverseDnsPrefix"],
            _partition,
        ),
        Invoke(
            "aws:index/getAvailabilityZones:getAvailabilityZones",
            {
                "allAvailabilityZones": flag(),
                "excludeNames": texts(),
                "excludeZoneIds": texts(),
                "filters": FILTERS,
                "state": text(),
                **REGION,
            },
            [
                *("allAvailabilityZones", "excludeNames", "excludeZoneIds", "filters", "groupNames", "id", "names"),
                *("region", "state", "zoneIds"),
            ],
            _zones,
        ),
        Invoke(
            "aws:ssm/getParameter:getParameter",
            {"name": text(REQUIRED), "withDecryption": flag(default=True), **REGION},
            ["arn", "id", "insecureValue", "name", "region", "type", "value", "version", "withDecryption"],
            _parameter,
        ),
        Invoke(
            "aws:cloudwatch/getLogGroups:getLogGroups",
            {"logGroupNamePrefix": text(), **REGION},
            ["arns", "id", "logGroupNamePrefix", "logGroupNames", "region"],
            _log_groups,
        ),
        Invoke(
            "aws:ec2/getInstanceType:getInstanceType",
            {"instanceType": text(REQUIRED), **REGION},
            [*INSTANCE_TYPE, *PARTS, "id", "region"],
            _instance_type,
        ),
        Invoke(
            "aws:eks/getAddonVersion:getAddonVersion",
            {"addonName": text(REQUIRED), "kubernetesVersion": text(REQUIRED), "mostRecent": flag(), **REGION},
            ["addonName", "id", "kubernetesVersion", "mostRecent", "region", "version"],
            _addon_version,
        ),
        Invoke(
            "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings",
            {"filters": FILTERS, "locationType": text(), **REGION},
            ["filters", "id", "instanceTypes", "locationType", "locationTypes", "locations", "region"],
            _offerings,
        ),
        Invoke(
            "aws:ec2/getSubnet:getSubnet",
            {
                **{name: text() for name in ("availabilityZone", "cidrBlock", "id", "state", "vpcId")},
                "filters": FILTERS,
                "tags": mapping(),
                **REGION,
            },
            [
                *("arn", "assignIpv6AddressOnCreation", "availabilityZone", "availabilityZoneId"),
                *("availableIpAddressCount", "cidrBlock", "customerOwnedIpv4Pool", "defaultForAz", "enableDns64"),
                *("enableLniAtDeviceIndex", "enableResourceNameDnsAaaaRecordOnLaunch"),
                *("enableResourceNameDnsARecordOnLaunch", "filters", "id", "ipv6CidrBlock"),
                *("ipv6CidrBlockAssociationId", "ipv6Native", "mapCustomerOwnedIpOnLaunch", "mapPublicIpOnLaunch"),
                *("outpostArn", "ownerId", "privateDnsHostnameTypeOnLaunch", "region", "state", "tags", "vpcId"),
            ],
            _subnet,
        ),
        Invoke(
            "aws:servicequotas/getServiceQuota:getServiceQuota",
            {"quotaCode": text(REQUIRED), "serviceCode": text(REQUIRED), **REGION},
            [
                *("adjustable", "arn", "defaultValue", "globalQuota", "id", "quotaCode", "quotaName", "region"),
                *("serviceCode", "serviceName", "usageMetrics", "value"),
            ],
            _quota,
        ),
        Invoke(
            "aws:iam/getSessionContext:getSessionContext",
            {"arn": text(REQUIRED)},
            ["arn", "id", "issuerArn", "issuerId", "issuerName", "sessionName"],
            _session_context,
        ),
        Invoke(
            "aws:iam/getRole:getRole",
            {"name": text(REQUIRED)},
            [
                *("arn", "assumeRolePolicy", "createDate", "description", "id", "maxSessionDuration", "name", "path"),
                *("permissionsBoundary", "roleLastUseds", "tags", "uniqueId"),
            ],
            _role,
        ),
        Invoke(
            "aws:iam/getUser:getUser",
            {"userName": text(REQUIRED)},
            ["arn", "id", "path", "permissionsBoundary", "tags", "userId", "userName"],
            _user,
        ),
        Invoke(
            "aws:kms/getKey:getKey",
            {"keyId": text(REQUIRED), "grantTokens": texts(), **REGION},
            [
                *("grantTokens", *KEY_ANSWERED, *KEY_RARE, "customerMasterKeySpec", "id", "keyId", "multiRegion"),
                *("multiRegionConfigurations", "pendingDeletionWindowInDays", "region", "xksKeyConfigurations"),
            ],
            _key,
        ),
        Invoke(
            "aws:eks/getAccessEntry:getAccessEntry",
            {"clusterName": text(REQUIRED), "principalArn": text(REQUIRED), **REGION},
            [
                *("accessEntryArn", "clusterName", "createdAt", "id", "kubernetesGroups", "modifiedAt"),
                *("principalArn", "region", "tags", "tagsAll", "type", "userName"),
            ],
            _access_entry,
        ),
    ]
}
