"""A moto server and a configured AWS stand-in, one of each a test session."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import botocore.session
import pytest

from tests.sandbox.aws.standin import Plugin

SERVICES = ("autoscaling", "ec2", "efs", "eks", "iam", "kms", "logs", "route53", "s3", "ssm", "sts")


@pytest.fixture(scope="session")
def aws_url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sandbox.aws.server", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout
    server.stdout.readline()
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(10)


@pytest.fixture(scope="session")
def aws_config(aws_url: str) -> dict[str, Any]:
    return {
        "region": "eu-west-1",
        "accessKey": "test",
        "secretKey": "test",
        "endpoints": [dict.fromkeys(SERVICES, aws_url)],
        "skipCredentialsValidation": "true",
        "skipMetadataApiCheck": "true",
        "skipRequestingAccountId": "true",
        "s3UsePathStyle": "true",
        "defaultTags": {"tags": {"project": "paddle"}},
    }


@pytest.fixture(scope="session")
def plugin(aws_config: dict[str, Any]) -> Iterator[Plugin]:
    running = Plugin(aws_config)
    yield running
    running.close()


@pytest.fixture(scope="session")
def aws(aws_url: str) -> Callable[[str], Any]:
    """A client of a service that owes nothing to the stand-in: what AWS itself says."""
    session = botocore.session.Session()

    @cache
    def client(service: str, region: str = "eu-west-1") -> Any:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return session.create_client(service, region_name=region, endpoint_url=aws_url, **keys)

    return client
