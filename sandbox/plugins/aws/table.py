"""The table of all resource types."""

from __future__ import annotations

from sandbox.plugins.aws import budgets, ec2, efs, eks, iam, kms, logs, route53, s3, sns
from sandbox.plugins.aws.rows import Row

ROWS: dict[str, Row] = {
    row.token: row for service in (ec2, kms, s3, iam, logs, eks, efs, route53, sns, budgets) for row in service.ROWS
}
