"""Service Quotas patch: the quotas of EC2 for vCPUs, and the operation for default values."""

import json
from typing import Any

from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend
from moto.servicequotas.responses import ServiceQuotasResponse

from settings.quotas import QUOTAS, SERVICE

# Large enough for every test. A new account has 5 vCPUs or fewer.
VCPUS = 100_000.0

_get_service_quota = ServiceQuotasBackend.get_service_quota


def _with_ec2(self: ServiceQuotasBackend, service_code: str, quota_code: str) -> dict[str, Any]:
    if service_code != SERVICE:
        return _get_service_quota(self, service_code, quota_code)
    quota = next((each for group in QUOTAS.values() for each in group if each.code == quota_code), None)
    if quota is None:
        raise NoSuchResource
    arn = f"arn:{self.partition}:servicequotas:{self.region_name}:{self.account_id}:{service_code}/{quota_code}"
    return {
        "ServiceCode": service_code,
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": arn,
        "QuotaCode": quota_code,
        "QuotaName": quota.name,
        "Value": VCPUS,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def _default_quota(self: ServiceQuotasResponse) -> str:
    given = json.loads(self.body)
    return json.dumps({"Quota": self.backend.get_service_quota(given["ServiceCode"], given["QuotaCode"])})


def apply() -> None:
    ServiceQuotasBackend.get_service_quota = _with_ec2  # type: ignore[method-assign]
    ServiceQuotasResponse.get_aws_default_service_quota = _default_quota  # type: ignore[attr-defined]
