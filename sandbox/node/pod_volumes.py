"""The volumes of a pod as folders on this machine."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.node.pod_context import NotReadyError, PodContext, UnsupportedError, refuse_others
from tools.kubernetes_client import CONFIG_MAP, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, SERVICE_ACCOUNT, Object

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
        name, folder = volume["name"], self.folder / volume["name"]
        refuse_others(f"volume {name}", volume, {"name", "configMap", "emptyDir", "persistentVolumeClaim", "projected"})
        if "persistentVolumeClaim" in volume:
            return self._claimed(volume["persistentVolumeClaim"])
        folder.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            self._write(folder, self._config_map(volume["configMap"]))
        for source in volume.get("projected", {}).get("sources") or []:
            refuse_others(f"volume {name}", source, {"configMap", "downwardAPI", "serviceAccountToken"})
            if "serviceAccountToken" in source:
                self._token(folder / source["serviceAccountToken"]["path"], source["serviceAccountToken"])
            if "configMap" in source:
                self._write(folder, self._config_map(source["configMap"]))
            items = source.get("downwardAPI", {}).get("items") or []
            self._write(folder, {i["path"]: self.context.field(i["fieldRef"]["fieldPath"]).encode() for i in items})
        return Volume(folder, "emptyDir" not in volume)

    def _config_map(self, source: Object) -> dict[str, bytes]:
        """The files of a ConfigMap by their path in the volume."""
        refuse_others("configMap", source, {"name", "items", "defaultMode"})
        found = self.context.entries(CONFIG_MAP, source["name"])
        items = source.get("items") or [{"key": key, "path": key} for key in found]
        refuse_others("configMap: items", {key for item in items for key in item}, {"key", "path"})
        if missing := [item["key"] for item in items if item["key"] not in found]:
            raise NotReadyError(f"ConfigMap {source['name']} has no key {missing[0]}")
        return {item["path"]: found[item["key"]] for item in items}

    def _write(self, folder: Path, files: dict[str, bytes]) -> None:
        for path, data in files.items():
            write(folder / path, data)

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
        write(path, answer["status"]["token"].encode())
        self.tokens.append(Token(path, source, time.time() + 0.8 * seconds))

    def _claimed(self, source: Object) -> Volume:
        refuse_others("persistentVolumeClaim", source, {"claimName"})
        namespace, name = self.context.pod["metadata"]["namespace"], source["claimName"]
        claim = self.context.api.find(PERSISTENT_VOLUME_CLAIM, namespace, name)
        if claim is None or claim.get("status", {}).get("phase") != "Bound":
            raise NotReadyError(f"PersistentVolumeClaim {name} is not bound")
        volume = self.context.api.get(PERSISTENT_VOLUME, "", claim["spec"]["volumeName"])
        folder = self.shared / file_system_folder(volume)
        folder.mkdir(parents=True, exist_ok=True)
        return Volume(folder, False)


def file_system_folder(volume: Object) -> str:
    """The folder of a persistent volume: the ID of the file system, and of the access point if it has one."""
    spec = volume["spec"]
    if spec.get("nfs", {}).get("path") == "/":
        return str(spec["nfs"]["server"].partition(".")[0])
    csi = spec.get("csi", {})
    if csi.get("driver") == "efs.csi.aws.com" and re.fullmatch(r"fs-\w+::fsap-\w+", csi["volumeHandle"]):
        return str(csi["volumeHandle"].replace("::", "/"))
    name = volume["metadata"]["name"]
    raise UnsupportedError(f"PersistentVolume {name}: only nfs with the path / and the EFS CSI driver are supported")


def write(path: Path, data: bytes) -> None:
    """Replace the file in one step, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(data)
    draft.chmod(0o644)
    draft.replace(path)


def hosts_file(context: PodContext) -> bytes:
    """/etc/hosts as a kubelet writes it, so that a pod can resolve its own name."""
    return f"127.0.0.1 localhost\n{context.pod_ip} {context.hostname}\n".encode()
