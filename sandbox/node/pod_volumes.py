"""The volumes of a pod as folders on this machine."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.node.pod_context import NotReadyError, PodContext, UnsupportedError
from tools.kubernetes_client import (
    CONFIG_MAP,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
)

IAM_ROLE = "eks.amazonaws.com/role-arn"
IAM_TOKEN_FOLDER = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
_TOKEN_SECONDS = 3600


@dataclass(frozen=True)
class Volume:
    """The folder that holds a volume."""

    folder: Path
    readonly: bool


@dataclass(frozen=True)
class Token:
    """The file of a service account token, and the time to renew it."""

    path: Path
    source: Object
    renew_at: float


class PodVolumes:
    """All volumes of one pod. Its own volumes are in `folder`; file systems (EFS) are in `shared`."""

    def __init__(self, context: PodContext, folder: Path, shared: Path) -> None:
        self.context, self.folder, self.shared = context, folder, shared
        self.tokens: list[Token] = []

    def prepare(self) -> dict[str, Volume]:
        """Create every volume of the pod."""
        return {volume["name"]: self._volume(volume) for volume in self.context.pod["spec"].get("volumes") or []}

    def renew_tokens(self) -> None:
        """Replace tokens before they expire, as a kubelet does."""
        for token in [token for token in self.tokens if time.time() > token.renew_at]:
            self._token(token.path, token.source)
            self.tokens.remove(token)

    def _volume(self, volume: Object) -> Volume:
        folder = self.folder / volume["name"]
        kinds = sorted(volume.keys() - {"name"})
        source = volume[kinds[0]] if kinds else {}
        match kinds:
            case ["persistentVolumeClaim"]:
                return self._claimed(source)
            case [] | ["emptyDir"]:
                folder.mkdir(parents=True, exist_ok=True)
                return Volume(folder, False)
            case ["projected"]:
                for part in source.get("sources") or []:
                    self._write_source(folder, part, source.get("defaultMode"))
            case ["configMap"] | ["secret"] | ["downwardAPI"]:
                self._write_source(folder, volume, source.get("defaultMode"))
            case _:
                raise UnsupportedError(f"volume {volume['name']}: {', '.join(kinds)} is not supported")
        return Volume(folder, True)

    def _write_source(self, folder: Path, source: Object, mode: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, given in source.items():
            match kind:
                case "name":
                    continue
                case "serviceAccountToken":
                    self._token(folder / given["path"], given)
                    continue
                case "downwardAPI":
                    items = given.get("items") or []
                    files = {i["path"]: self.context.field(i["fieldRef"]["fieldPath"]).encode() for i in items}
                    modes = {i["path"]: i.get("mode") for i in items}
                case "configMap" | "secret":
                    object_kind = CONFIG_MAP if kind == "configMap" else SECRET
                    name = given.get("name") or given["secretName"]
                    found = self.context.entries(object_kind, name, bool(given.get("optional")))
                    items = given.get("items") or [{"key": key, "path": key} for key in found]
                    missing = [i["key"] for i in items if i["key"] not in found]
                    if missing and not given.get("optional"):
                        raise NotReadyError(f"{object_kind.kind} {name} has no key {missing[0]}")
                    files = {i["path"]: found[i["key"]] for i in items if i["key"] in found}
                    modes = {i["path"]: i.get("mode") for i in items}
                case _:
                    raise UnsupportedError(f"volume source {kind} is not supported")
            for path, data in files.items():
                write(folder / path, data, modes[path] or mode or 0o644)

    def _token(self, path: Path, source: Object) -> None:
        metadata = self.context.pod["metadata"]
        seconds = source.get("expirationSeconds", _TOKEN_SECONDS)
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec: Object = {"expirationSeconds": seconds, "boundObjectRef": bound}
        if source.get("audience"):
            spec["audiences"] = [source["audience"]]
        account = SERVICE_ACCOUNT.path(metadata["namespace"], self.context.service_account, "token")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self.context.api.request("POST", account, request)
        write(path, answer["status"]["token"].encode(), 0o644)
        self.tokens.append(Token(path, source, time.time() + 0.8 * seconds))

    def _claimed(self, source: Object) -> Volume:
        namespace, name = self.context.pod["metadata"]["namespace"], source["claimName"]
        claim = self.context.api.find(PERSISTENT_VOLUME_CLAIM, namespace, name)
        if claim is None or claim.get("status", {}).get("phase") != "Bound":
            raise NotReadyError(f"PersistentVolumeClaim {name} is not bound")
        volume = self.context.api.get(PERSISTENT_VOLUME, "", claim["spec"]["volumeName"])
        folder = self.shared / file_system_folder(volume)
        folder.mkdir(parents=True, exist_ok=True)
        return Volume(folder, bool(source.get("readOnly")))

    def iam_role(self) -> tuple[dict[str, str], Volume | None]:
        """What EKS adds to a pod if its service account has an IAM role: two variables and a token."""
        namespace = self.context.pod["metadata"]["namespace"]
        account = self.context.api.find(SERVICE_ACCOUNT, namespace, self.context.service_account) or {"metadata": {}}
        role = account["metadata"].get("annotations", {}).get(IAM_ROLE)
        if not role:
            return {}, None
        folder = self.folder / "aws-iam-token"
        self._token(folder / "token", {"audience": "sts.amazonaws.com", "expirationSeconds": 86400})
        env = {"AWS_ROLE_ARN": role, "AWS_WEB_IDENTITY_TOKEN_FILE": f"{IAM_TOKEN_FOLDER}/token"}
        return env, Volume(folder, True)


def file_system_folder(volume: Object) -> str:
    """The folder of a persistent volume: its EFS id and the path in the file system."""
    spec = volume["spec"]
    if "nfs" in spec:
        server, path = spec["nfs"]["server"], spec["nfs"].get("path", "/")
    elif spec.get("csi", {}).get("driver") == "efs.csi.aws.com":
        server, _, path = spec["csi"]["volumeHandle"].replace("::", ":").partition(":")
    else:
        name = volume["metadata"]["name"]
        raise UnsupportedError(f"PersistentVolume {name}: only nfs and the EFS CSI driver are supported")
    found = re.match(r"fs-[0-9a-f]+", server)
    parts = [part for part in re.split(r"[/:]+", path) if part not in ("", ".", "..")]
    return "/".join([found[0] if found else server, *parts])


def write(path: Path, data: bytes, mode: int) -> None:
    """Replace the file in one step, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(data)
    draft.chmod(mode)
    draft.replace(path)


def hosts_file(context: PodContext) -> bytes:
    """/etc/hosts as a kubelet writes it, so that a pod can resolve its own name."""
    lines = ["127.0.0.1 localhost", f"{context.pod_ip} {context.hostname}"]
    lines += [f"{alias['ip']} {' '.join(alias['hostnames'])}" for alias in context.pod["spec"].get("hostAliases") or []]
    return ("\n".join(lines) + "\n").encode()
