"""A thin client of the Kubernetes API: what the stand-in plugin and the node need, on the standard library alone."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

Object = dict[str, Any]

APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
TIMEOUT_SECONDS = 60.0


class ApiError(Exception):
    """The API server refused a request; the message is its own."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(status.get("message") or f"HTTP {code}")
        self.code = code
        self.reason: str = status.get("reason", "")
        self.details: Object = status.get("details") or {}


def api_error(code: int, data: bytes) -> ApiError:
    """An ApiError from what the server sent, which need not be a Status object."""
    try:
        return ApiError(code, json.loads(data))
    except ValueError:
        return ApiError(code, {"message": f"HTTP {code}: {data[:200].decode(errors='replace')}"})


class UnreachableError(Exception):
    """No API server answered."""


class KubeconfigError(ValueError):
    """The kubeconfig cannot be used; the message says why."""


@dataclass(frozen=True)
class Kubeconfig:
    """The current context of a kubeconfig, resolved."""

    server: str
    cluster: Object
    user: Object
    namespace: str = ""
    folder: Path = Path()


def load_kubeconfig(path_or_contents: str, context: str = "") -> Kubeconfig:
    """Read a kubeconfig given as its path or as its text (YAML or JSON)."""
    text, folder = path_or_contents, Path()
    if "\n" not in text and not text.lstrip().startswith("{"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise KubeconfigError(f"kubeconfig: no file {path}; give its path or its contents")
        text, folder = path.read_text(), path.parent
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise KubeconfigError(f"kubeconfig: neither YAML nor JSON: {problem}") from problem
    if not isinstance(config, dict):
        raise KubeconfigError("kubeconfig: neither a kubeconfig nor the path of one")

    def entry(section: str, kind: str, name: str) -> Object:
        for item in config.get(section) or []:
            if item.get("name") == name:
                return dict(item.get(kind) or {})
        raise KubeconfigError(f"kubeconfig: no {kind} named {name!r} under {section}")

    chosen = entry("contexts", "context", context or config.get("current-context", ""))
    cluster = entry("clusters", "cluster", chosen.get("cluster", ""))
    user = entry("users", "user", chosen["user"]) if chosen.get("user") else {}
    if not cluster.get("server"):
        raise KubeconfigError("kubeconfig: the cluster has no server")
    return Kubeconfig(cluster["server"], cluster, user, chosen.get("namespace", ""), folder)


@dataclass(frozen=True)
class Kind:
    """What discovery says of a kind: where its objects live."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of an object, or of the collection when no name is given."""
        parts = ["api" if "/" not in self.api_version else "apis", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace)]
        parts += [self.plural, quote(name), subresource]
        return "/" + "/".join(part for part in parts if part)


POD = Kind("v1", "Pod", "pods", True)
NODE = Kind("v1", "Node", "nodes", False)
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps", True)
SECRET = Kind("v1", "Secret", "secrets", True)
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts", True)
PERSISTENT_VOLUME = Kind("v1", "PersistentVolume", "persistentvolumes", False)
PERSISTENT_VOLUME_CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True)


class Api:
    """One API server, as one user. Safe to share between threads: each request has its own connection."""

    def __init__(self, config: Kubeconfig) -> None:
        self.config = config
        self.url = urlsplit(config.server)
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[str, Kind]] = {}
        self._schemas: dict[str, Object] = {}
        self._tls: ssl.SSLContext | None = None
        self._credential: Object = {}
        self._credential_ends = 0.0

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self.request("GET", kind.path(namespace, name))

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, or None when there is none."""
        try:
            return self.get(kind, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def list(self, kind: Kind, namespace: str = "", **query: str) -> list[Object]:
        return list(self.request("GET", kind.path(namespace), query=query)["items"])

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request; the answer is the decoded JSON."""
        with self._open(method, path, body, query, content_type) as response:
            data = response.read()
        return dict(json.loads(data)) if data else {}

    def watch(self, kind: Kind, stop: threading.Event, **query: str) -> Iterator[tuple[str, Object]]:
        """Yield (ADDED | MODIFIED | DELETED, object) for ever, and (SYNCED, the listing) after each listing's objects.

        A lost connection is taken up again with a new listing, so objects deleted meanwhile are only missing from it.
        """
        while not stop.is_set():
            try:
                listing = self.request("GET", kind.path(), query=query)
                for item in listing["items"]:
                    yield "ADDED", item
                yield "SYNCED", listing
                yield from self._changes(kind, stop, listing["metadata"]["resourceVersion"], query)
            except (ApiError, UnreachableError):
                stop.wait(1)

    def _changes(
        self, kind: Kind, stop: threading.Event, version: str, query: dict[str, str]
    ) -> Iterator[tuple[str, Object]]:
        asked = query | {"watch": "1", "resourceVersion": version, "timeoutSeconds": "50"}
        with self._open("GET", kind.path(), None, asked) as response:
            for line in response:
                event = json.loads(line)
                if stop.is_set() or event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    def kind(self, api_version: str, kind: str) -> Kind | None:
        """Ask discovery for a kind; None when the cluster does not have it."""
        with self._lock:
            known = self._kinds.get(api_version)
        if known is None or kind not in known:
            prefix = "/apis/" if "/" in api_version else "/api/"
            try:
                listing = self.request("GET", prefix + api_version)
            except ApiError as error:
                if error.code == 404:
                    return None
                raise
            known = {
                item["kind"]: Kind(api_version, item["kind"], item["name"], item["namespaced"])
                for item in listing["resources"]
                if "/" not in item["name"]
            }
            with self._lock:
                self._kinds[api_version] = known
        return known.get(kind)

    def schemas(self, api_version: str) -> Object:
        """The OpenAPI schemas of a group and version, by name."""
        with self._lock:
            if api_version in self._schemas:
                return self._schemas[api_version]
        prefix = "/openapi/v3/apis/" if "/" in api_version else "/openapi/v3/api/"
        schemas: Object = self.request("GET", prefix + api_version)["components"]["schemas"]
        with self._lock:
            self._schemas[api_version] = schemas
        return schemas

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and hand out its response; an answer of 400 or more is raised."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection(self.url.netloc, timeout=TIMEOUT_SECONDS)
        if self.url.scheme == "https":
            connection = http.client.HTTPSConnection(self.url.netloc, timeout=TIMEOUT_SECONDS, context=self.tls())
        try:
            target = self.url.path.rstrip("/") + path + ("?" + urlencode(query) if query else "")
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise api_error(response.status, response.read())
            yield response
        except (OSError, http.client.HTTPException) as problem:
            raise UnreachableError(
                f"the Kubernetes API at {self.config.server} cannot be reached: {problem}"
            ) from problem
        finally:
            connection.close()

    def _secret(self, source: Object, key: str) -> bytes | None:
        """A kubeconfig value that is inline (KEY-data) or in a file (KEY)."""
        if source.get(f"{key}-data"):
            return base64.b64decode(source[f"{key}-data"])
        if source.get(key):
            return Path(self.config.folder, source[key]).read_bytes()
        return None

    def certificate_authority(self) -> str:
        """The PEM certificates that the API server's own certificate is verified against."""
        return (self._secret(self.config.cluster, "certificate-authority") or b"").decode()

    def client_certificate(self) -> tuple[bytes, bytes] | None:
        """The user's certificate and key in PEM, if that is how it authenticates."""
        credential = self._exec_credential()
        if credential.get("clientCertificateData"):
            return credential["clientCertificateData"].encode(), credential["clientKeyData"].encode()
        certificate = self._secret(self.config.user, "client-certificate")
        key = self._secret(self.config.user, "client-key")
        return (certificate, key) if certificate and key else None

    def tls(self) -> ssl.SSLContext:
        """The TLS settings of the kubeconfig; kept, but for a credential plugin's, which may change."""
        if self._tls and not self.config.user.get("exec"):
            return self._tls
        context = ssl.create_default_context(cadata=self.certificate_authority() or None)
        if self.config.cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair := self.client_certificate():
            load_pair(context, *pair)
        # Only now: another thread must not take it half loaded.
        self._tls = context
        return context

    def _token(self) -> str:
        user = self.config.user
        if user.get("tokenFile"):
            return Path(self.config.folder, user["tokenFile"]).read_text().strip()
        return str(user.get("token") or self._exec_credential().get("token") or "")

    def _exec_credential(self) -> Object:
        """What the kubeconfig's credential plugin answers, kept until it says it ends."""
        plugin = self.config.user.get("exec")
        if not plugin:
            return {}
        with self._lock:
            if time.time() < self._credential_ends:
                return self._credential
            self._credential, self._credential_ends = run_credential_plugin(plugin)
            return self._credential


def run_credential_plugin(plugin: Object) -> tuple[Object, float]:
    """Run an exec credential plugin; its status and when that ends (seconds since the epoch)."""
    command = [plugin["command"], *(plugin.get("args") or [])]
    shown = " ".join(command)
    asked = {"kind": "ExecCredential", "apiVersion": plugin["apiVersion"], "spec": {"interactive": False}}
    env = dict(os.environ) | {item["name"]: item["value"] for item in plugin.get("env") or []}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(asked)
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise UnreachableError(f"the kubeconfig's credential plugin `{shown}` did not run: {problem}") from problem
    if done.returncode:
        raise UnreachableError(f"the kubeconfig's credential plugin `{shown}` failed: {done.stderr.strip()[-500:]}")
    try:
        status: Object = json.loads(done.stdout)["status"]
    except (ValueError, KeyError) as problem:
        raise UnreachableError(f"the kubeconfig's credential plugin `{shown}` printed no ExecCredential") from problem
    if ends := status.get("expirationTimestamp"):
        return status, parse_time(ends) - 60
    return status, time.time() + 600


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a PEM pair that is in memory: the ssl module takes files only."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


def parse_time(text: str) -> float:
    """Kubernetes' RFC 3339 time as seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def rfc3339(seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
