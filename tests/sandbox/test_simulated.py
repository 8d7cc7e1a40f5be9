"""On a machine that cannot isolate processes, kwok simulates the pods, and the output says that nothing was trained."""

from __future__ import annotations

from pathlib import Path

from tests.sandbox.checkout import Checkout

WITHOUT_MOUNT_NAMESPACES = (
    *("unshare", "--user", "--map-root-user"),
    *("sh", "-c", 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"', "sh"),
)


def test_without_mount_namespaces_pods_are_simulated_and_the_output_says_so(cached: None, tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path)
    try:
        done = checkout.run("up", under=WITHOUT_MOUNT_NAMESPACES)
        assert done.returncode == 0, done.stdout
        assert "this machine does not isolate them" in done.stdout
        assert "Pods were simulated: nothing was trained" in done.stdout
        assert checkout.job("paddle-cluster-job")["status"]["succeeded"] == 3
        bucket = checkout.client("s3").list_objects_v2(Bucket=checkout.output("bucket"))
        assert bucket["KeyCount"] == 0
    finally:
        down = checkout.run("down", under=WITHOUT_MOUNT_NAMESPACES)
        assert down.returncode == 0, down.stdout
