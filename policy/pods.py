"""Rules for everything inside the cluster: what pods, volumes and roles of Kubernetes may contain."""

from collections.abc import Iterator, Mapping
from typing import Any

from policy.graph import Resource, at, members, nested

Problems = Iterator[str]

DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
PERSISTENT_VOLUME = "kubernetes:core/v1:PersistentVolume"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
CLUSTER_ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"

CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
POD_KEYS = frozenset({*CONTAINERS, "hostIPC", "hostNetwork", "hostPID"})
VOLUMES = frozenset({"name", "configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"})
# The device plugin for GPUs registers itself with the kubelet here.
DEVICE_PLUGINS = {"path": "/var/lib/kubelet/device-plugins"}
POD_CONTEXT = frozenset({"fsGroup", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile", "supplementalGroups"})
CONTEXT = frozenset(
    {
        "allowPrivilegeEscalation",
        "capabilities",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
    }
)
VOLUME_SPEC = frozenset(
    {"accessModes", "capacity", "csi", "mountOptions", "nfs", "persistentVolumeReclaimPolicy", "storageClassName"}
    | {"claimRef", "volumeMode"}
)
READABLE, READ = frozenset({"jobs", "pods"}), frozenset({"get", "list", "watch"})


def _pods(resource: Resource) -> Iterator[Mapping[str, Any]]:
    """Each pod in the inputs, at any depth."""
    if resource.type.startswith("kubernetes:"):
        for _, value in nested(resource.inputs):
            if isinstance(value, Mapping) and not POD_KEYS.isdisjoint(value):
                yield value


def _containers(pod: Any) -> list[Any]:
    return [found for key in CONTAINERS for found in members(pod, key)]


def no_privileged_pods(resource: Resource) -> Problems:
    """No pod can gain privileges, or use the namespaces, the files or the devices of its node."""
    for pod in _pods(resource):
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if at(pod, name):
                yield resource.problem(name, "shares a namespace with the node", "Remove it")
        yield from _context(resource, "securityContext", at(pod, "securityContext"), POD_CONTEXT)
        for volume in members(pod, "volumes"):
            other = sorted(set(volume) - VOLUMES)
            device_plugin = resource.type == DAEMON_SET and at(resource.inputs, "metadata.namespace") == "kube-system"
            if other and not (device_plugin and other == ["hostPath"] and volume["hostPath"] == DEVICE_PLUGINS):
                path = f"volumes.{at(volume, 'name')}.{other[0]}"
                yield resource.problem(path, "is not an allowed kind of volume", "Use the claim, or an emptyDir")
        for container in _containers(pod):
            path, context = f"{at(container, 'name')}.securityContext", at(container, "securityContext")
            instead = "Use container() of workloads/job.py"
            if at(context, "allowPrivilegeEscalation") is not False:
                yield resource.problem(f"{path}.allowPrivilegeEscalation", "is not off", instead)
            capabilities = at(context, "capabilities")
            if not isinstance(capabilities, Mapping) or set(capabilities) != {"drop"}:
                yield resource.problem(f"{path}.capabilities", "does not only drop capabilities", instead)
            elif members(capabilities, "drop") != ["ALL"]:
                yield resource.problem(f"{path}.capabilities.drop", "is not ALL", instead)
            yield from _context(resource, path, context, CONTEXT)


def _context(resource: Resource, path: str, context: Any, allowed: frozenset[str]) -> Problems:
    for key in sorted(set(context) - allowed) if isinstance(context, Mapping) else []:
        yield resource.problem(f"{path}.{key}", "is on", "Remove it")
    if at(context, "seccompProfile.type") not in (None, "RuntimeDefault"):
        yield resource.problem(f"{path}.seccompProfile", "is not the one of the runtime", "Write RuntimeDefault")


def pods_limit_resources(resource: Resource) -> Problems:
    """Every container requests CPU and memory, and has a limit for its memory."""
    for pod in _pods(resource):
        for container in _containers(pod):
            for need in ("requests.cpu", "requests.memory", "limits.memory"):
                if not at(container, f"resources.{need}"):
                    path = f"{at(container, 'name')}.resources.{need}"
                    yield resource.problem(path, "is missing", "Write how much the container needs")


def volumes_on_efs_only(resource: Resource) -> Problems:
    """A persistent volume is an EFS file system, not a folder or disk of a node."""
    if resource.type == PERSISTENT_VOLUME:
        spec = at(resource.inputs, "spec")
        other = sorted(set(spec) - VOLUME_SPEC) if isinstance(spec, Mapping) else []
        if other or at(spec, "csi.driver") not in (None, "efs.csi.aws.com"):
            yield resource.problem(f"spec.{other[0] if other else 'csi'}", "is not EFS", "Write nfs, or csi with EFS")


def pods_only_read_the_cluster(resource: Resource) -> Problems:
    """A role inside the cluster can read Pods and Jobs. Only a service account has such a role."""
    if resource.type == ROLE:
        for rule in members(resource.inputs, "rules"):
            for key, allowed in (("resources", READABLE), ("verbs", READ)):
                if not set(members(rule, key)) <= allowed or not members(rule, key):
                    yield resource.problem(f"rules.{key}", "allows more than reading Pods and Jobs", "Name only those")
    if resource.type in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
        if at(resource.inputs, "roleRef.kind") != "Role":
            yield resource.problem("roleRef", "is not a Role of the namespace", "Name a Role")
        if any(at(subject, "kind") != "ServiceAccount" for subject in members(resource.inputs, "subjects")):
            yield resource.problem("subjects", "contains a user or a group", "Name a ServiceAccount")
