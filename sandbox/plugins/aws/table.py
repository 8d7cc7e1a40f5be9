"""The table of all rows."""

from __future__ import annotations

from sandbox.plugins.aws import ec2, iam, kms, s3
from sandbox.plugins.aws.rows import Row

ROWS: dict[str, Row] = {row.token: row for service in (ec2, s3, iam, kms) for row in service.ROWS}
