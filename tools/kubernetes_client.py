"""A small client of the Kubernetes API, for the view of a stack and for the sandbox, without the kubernetes package."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
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
SECONDS_OF_A_WATCH = 50  # less than the timeout of a connection without data


class ApiError(Exception):
    """The API server rejected a request; the message comes from the API server."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(status.get("message") or f"HTTP {code}")
        self.code = code
        self.reason: str = status.get("reason", "")
        self.details: Object = status.get("details") or {}


def api_error(code: int, data: bytes) -> ApiError:
    """The ApiError for an answer, which may be something other than a Status object."""
    try:
        return ApiError(code, json.loads(data))
    except ValueError:
        return ApiError(code, {"message": f"HTTP {code}: {data[:200].decode(errors='replace')}"})


class UnreachableError(Exception):
    """The API server did not answer."""


class KubeconfigError(ValueError):
    """The kubeconfig is not usable; the message gives the reason."""


@dataclass(frozen=True)
class Kubeconfig:
    """The cluster and the user of one context of a kubeconfig."""

    server: str
    cluster: Object
    user: Object
    folder: Path = Path()


def load_kubeconfig(path_or_contents: str) -> Kubeconfig:
    """Read a kubeconfig from a path or from its contents (YAML or JSON)."""
    text, folder = path_or_contents, Path()
    if "\n" not in text and not text.lstrip().startswith("{"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise KubeconfigError(
                f"kubeconfig: the file {path} does not exist; give the path or the contents of a kubeconfig"
            )
        text, folder = path.read_text(), path.parent
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise KubeconfigError(f"kubeconfig: not valid YAML or JSON: {problem}") from problem
    if not isinstance(config, dict):
        raise KubeconfigError("kubeconfig: this is not a kubeconfig and not the path of one")

    def entry(section: str, kind: str, name: str) -> Object:
        for item in config.get(section) or []:
            if item.get("name") == name:
                return dict(item.get(kind) or {})
        raise KubeconfigError(f"kubeconfig: {section} has no {kind} named {name!r}")

    chosen = entry("contexts", "context", config.get("current-context", ""))
    cluster = entry("clusters", "cluster", chosen.get("cluster", ""))
    user = entry("users", "user", chosen["user"]) if chosen.get("user") else {}
    if not cluster.get("server"):
        raise KubeconfigError("kubeconfig: the cluster has no server")
    return Kubeconfig(cluster["server"], cluster, user, folder)


@dataclass(frozen=True)
class Kind:
    """A kind of objects and its URL path, as the API server's discovery returns it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of an object, or of the collection if no name is given."""
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
    """One API server, used as one user. Threads may share it: each request opens its own connection."""

    def __init__(self, config: Kubeconfig) -> None:
        self.config = config
        self.url = urlsplit(config.server)
        self._lock = threading.Lock()
        self._schemas: dict[str, Object] = {}
        self._tls: ssl.SSLContext | None = None
        self._credential: Object = {}
        self._credential_expires = 0.0

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self.request("GET", kind.path(namespace, name))

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, or None if it does not exist."""
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
        """Send one request and return the decoded JSON answer."""
        with self._open(method, path, body, query, content_type) as response:
            data = response.read()
        return dict(json.loads(data)) if data else {}

    def follow(self, kind: Kind, namespace: str = "", **query: str) -> Iterator[tuple[str, Object]]:
        """Yield (LISTED, listing), then (ADDED | MODIFIED | DELETED, object) until a new listing is needed."""
        path = kind.path(namespace)
        listing = self.request("GET", path, query=query)
        yield "LISTED", listing
        version = listing["metadata"]["resourceVersion"]
        while True:
            began = time.monotonic()
            watch = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(SECONDS_OF_A_WATCH)}
            for line in self.lines(path, query | watch):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                version = event["object"]["metadata"]["resourceVersion"]
                yield event["type"], event["object"]
            # Do not repeat a watch that ends at once without a pause.
            if time.monotonic() - began < 1:
                return

    def lines(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        """The lines of an answer as they arrive."""
        with self._open("GET", path, None, query) as response:
            yield from response

    def schemas(self, api_version: str) -> Object:
        """The OpenAPI schemas of an API group and version, by name."""
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
        """Send a request and yield its response; raise ApiError for a status of 400 or more."""
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
        """A value of the kubeconfig, given inline (KEY-data) or as a file (KEY)."""
        if source.get(f"{key}-data"):
            return base64.b64decode(source[f"{key}-data"])
        if source.get(key):
            return Path(self.config.folder, source[key]).read_bytes()
        return None

    def certificate_authority(self) -> str:
        """The PEM certificates of the authority that signed the API server's certificate."""
        return (self._secret(self.config.cluster, "certificate-authority") or b"").decode()

    def client_certificate(self) -> tuple[bytes, bytes] | None:
        """The user's certificate and key in PEM, if the user authenticates with a certificate."""
        credential = self._exec_credential()
        if credential.get("clientCertificateData"):
            return credential["clientCertificateData"].encode(), credential["clientKeyData"].encode()
        certificate = self._secret(self.config.user, "client-certificate")
        key = self._secret(self.config.user, "client-key")
        return (certificate, key) if certificate and key else None

    def tls(self) -> ssl.SSLContext:
        """The TLS settings of the kubeconfig. Cached unless a credential plugin can change them."""
        if self._tls and not self.config.user.get("exec"):
            return self._tls
        context = ssl.create_default_context(cadata=self.certificate_authority() or None)
        if self.config.cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair := self.client_certificate():
            load_pair(context, *pair)
        # Assigned last, so that no other thread uses an incomplete context.
        self._tls = context
        return context

    def _token(self) -> str:
        user = self.config.user
        if user.get("tokenFile"):
            return Path(self.config.folder, user["tokenFile"]).read_text().strip()
        return str(user.get("token") or self._exec_credential().get("token") or "")

    def _exec_credential(self) -> Object:
        """The answer of the kubeconfig's credential plugin, cached until it expires."""
        plugin = self.config.user.get("exec")
        if not plugin:
            return {}
        with self._lock:
            if time.time() < self._credential_expires:
                return self._credential
            self._credential, self._credential_expires = run_credential_plugin(plugin)
            return self._credential


def run_credential_plugin(plugin: Object) -> tuple[Object, float]:
    """Run an exec credential plugin; returns its status and the expiry time in seconds since the epoch."""
    command = [plugin["command"], *(plugin.get("args") or [])]
    shown = " ".join(command)
    request = {"kind": "ExecCredential", "apiVersion": plugin["apiVersion"], "spec": {"interactive": False}}
    env = dict(os.environ) | {item["name"]: item["value"] for item in plugin.get("env") or []}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(request)
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise UnreachableError(
            f"the credential plugin `{shown}` of the kubeconfig could not be run: {problem}"
        ) from problem
    if done.returncode:
        raise UnreachableError(
            f"the credential plugin `{shown}` of the kubeconfig failed: {done.stderr.strip()[-500:]}"
        )
    try:
        status: Object = json.loads(done.stdout)["status"]
    except (ValueError, KeyError) as problem:
        raise UnreachableError(
            f"the credential plugin `{shown}` of the kubeconfig printed no ExecCredential"
        ) from problem
    if expires := status.get("expirationTimestamp"):
        return status, parse_time(expires) - 60
    return status, time.time() + 600


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and key from memory: the ssl module reads files only."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


def parse_time(text: str) -> float:
    """An RFC 3339 time, as Kubernetes and Pulumi write it, in seconds since the epoch."""
    # Python 3.10 reads fractions of three or six digits only.
    fraction = re.search(r"\.\d+", text)
    whole = datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
    return whole.timestamp() + float(fraction[0] if fraction else 0)


def rfc3339(seconds: float) -> str:
    """A time in the RFC 3339 form that Kubernetes uses."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
