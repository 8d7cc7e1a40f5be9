"""Settings and files that several tests use."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from trainer_settings import TrainerSettings

PEER_TIMEOUT, STALL_TIMEOUT = 900.0, 600.0


def settings(trainer: int) -> TrainerSettings:
    """A training of three trainers."""
    return TrainerSettings(
        job="job",
        job_uid="job-1",
        namespace="default",
        job_folder=Path("/nowhere"),
        code=Path("/nowhere/code"),
        trainers=3,
        trainer=trainer,
        nic="lo",
        port=7164,
        ports=2,
        ports_sparse=2,
        pod_uid=f"uid-{trainer}",
        pod_ip=f"10.0.0.{trainer}",
        passes=5,
        max_attempts=3,
        peer_timeout=PEER_TIMEOUT,
        stall_timeout=STALL_TIMEOUT,
        arguments=(),
    )


def make_tar(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar of these files, and a folder and a link among them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return buffer.getvalue()
