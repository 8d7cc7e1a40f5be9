"""The client of the Kubernetes API."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import yaml

from sandbox.cluster.control_plane import ControlPlane
from tests.emulator.cluster_helpers import eventually
from tools.kubernetes_client import CONFIG_MAP, SERVICE_ACCOUNT, Api, Object, load_kubeconfig, load_pair


def test_parallel_first_requests_all_use_the_client_certificate(
    cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, release = threading.Semaphore(0), threading.Event()

    def load_when_released(*arguments: object) -> None:
        loading.release()
        release.wait(60)
        load_pair(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("tools.kubernetes_client.load_pair", load_when_released)
    api = Api(load_kubeconfig(str(cluster.kubeconfig)))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(api.list, CONFIG_MAP)
        assert loading.acquire(timeout=60)
        # A second request that does not load the certificate itself would be sent without one.
        second: Future[list[Object]] = pool.submit(api.list, CONFIG_MAP)
        eventually(lambda: second.done() or loading.acquire(blocking=False))
        release.set()
        assert first.result(60)
        assert second.result(60)


def test_the_token_of_a_credential_plugin_is_used(api: Api, cluster: ControlPlane) -> None:
    account = SERVICE_ACCOUNT.path("kube-system", "default", "token")
    token = api.request("POST", account, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    version = "client.authentication.k8s.io/v1beta1"
    answer = {"kind": "ExecCredential", "apiVersion": version, "status": {"token": token}}
    script = (
        "import os, sys; print(os.environ['ANSWER']); sys.exit('v1beta1' not in os.environ['KUBERNETES_EXEC_INFO'])"
    )
    plugin: Object = {"apiVersion": version, "command": sys.executable, "args": ["-c", script]}
    plugin |= {"env": [{"name": "ANSWER", "value": json.dumps(answer)}]}
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"exec": plugin}
    client = Api(load_kubeconfig(yaml.safe_dump(config)))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:kube-system:default"
