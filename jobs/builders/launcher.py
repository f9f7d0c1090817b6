"""domain: the launcher pod and its own objects: the ConfigMap with which Open MPI reaches the
workers, the account and its Role. Also the fields of the pod template that no pod gets."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from jobs.builders.pods import (
    KUBECTL_VOLUME,
    MPI_FOLDER,
    MPI_VOLUME,
    SCRIPT,
    add_environment,
    add_key,
    add_mounts,
    add_volume,
    build_pod,
    child_metadata,
    ipu_environment,
    mpi_volume,
    pod_metadata,
    pod_spec,
    sleep_command,
)
from jobs.ipujob.names import (
    ANNOTATION_USAGE,
    GROUP,
    LONGEST_HOST,
    ROLE_LAUNCHER,
    ROLE_WORKER,
    SHORT_HOST,
    JobKey,
    host_names,
    launcher_name,
    needs_short_hosts,
    pod_labels,
    worker_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.builders.pods import BuildContext, PodPlace
    from jobs.ipujob.names import Manifest
    from jobs.ipujob.spec import JobSpec

KUBECTL_FOLDER = "/opt/kube"
HOSTFILE = "hostfile"


def build_config_map(context: BuildContext) -> Manifest:
    """ConfigMap with the remote-execution script and the hostfile."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(context.key, launcher_name(context.key.name)),
        "data": {SCRIPT: kubexec_script(context), HOSTFILE: hostfile(context)},
    }


def hostfile(context: BuildContext) -> str:
    """One line per worker: its host name and its slots."""
    hosts = host_names(context.key.name, context.spec.total_workers)
    return "".join(f"{host} slots={context.spec.slots}\n" for host in hosts)


def kubexec_script(context: BuildContext) -> str:
    """The script that mpirun calls as `kubexec.sh <host> <command...>`."""
    key, container = context.key, main_container_name(context)
    return f"""#!/bin/sh
# Runs a command in a worker pod, for mpirun: kubexec.sh <host> <command...>
host=$1
shift
{_pod_of_host(context)}
exec "${{IPUHUB_KUBECTL:-{KUBECTL_FOLDER}/kubectl}}" exec --namespace {key.namespace} \\
  "$pod" --container {shlex.quote(container)} -- /bin/sh -c "$*"
"""


def _pod_of_host(context: BuildContext) -> str:
    job = context.key.name
    if not needs_short_hosts(job, context.spec.total_workers):
        return "pod=$host"
    prefix = worker_name(job, 0).removesuffix("0")
    return f'pod="{prefix}${{host#{SHORT_HOST}}}" # the pod names are too long for mpirun'


def main_container_name(context: BuildContext) -> str:
    """The container in which the job's processes run: the template's first."""
    return str(context.spec.template["spec"]["containers"][0]["name"])


RBAC = "rbac.authorization.k8s.io"


def build_service_account(context: BuildContext) -> Manifest:
    """The launcher pod's identity."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child_metadata(context.key, launcher_name(context.key.name)),
    }


def build_role(context: BuildContext) -> Manifest:
    """Watch pods, exec into this job's workers only, read this job."""
    job = context.key.name
    workers = [worker_name(job, n) for n in range(context.spec.total_workers)]
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": child_metadata(context.key, launcher_name(job)),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
            {
                "apiGroups": [""],
                "resources": ["pods/exec"],
                "resourceNames": workers,
                # kubectl execs by WebSocket, a GET; older versions by SPDY, a POST.
                "verbs": ["create", "get"],
            },
            {
                "apiGroups": [GROUP],
                "resources": ["ipujobs"],
                "resourceNames": [job],
                "verbs": ["get"],
            },
        ],
    }


def build_role_binding(context: BuildContext) -> Manifest:
    """Gives the role to the launcher's service account."""
    name = launcher_name(context.key.name)
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": child_metadata(context.key, name),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": context.key.namespace}],
    }


INIT_CONTAINER = "ipuhub-launcher"
DROPPED_FROM_POD = ("initContainers", "ephemeralContainers", "resources")
DROPPED_FROM_CONTAINER = (
    "resources",
    "resizePolicy",
    "restartPolicy",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "args",
)
ACCOUNT_VOLUME = "ipuhub-account"
ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607  # as Kubernetes asks for; the kubelet renews it
SHORT_HOSTNAME = "ipujob-launcher"
OPEN_MPI = {
    "OMPI_MCA_plm_rsh_agent": f"{MPI_FOLDER}/{SCRIPT}",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # only the launcher may exec into workers
    "OMPI_MCA_orte_default_hostfile": f"{MPI_FOLDER}/{HOSTFILE}",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "1",  # pod names may have dots
    "OMPI_MCA_if_base_do_not_resolve": "1",  # DNS knows no worker: asking it only costs time
}


def build_launcher(context: BuildContext, place: PodPlace) -> Manifest:
    """The pod that runs the job's command: the workers' pod with its first container only.

    Volumes, mounts, environment, pull secrets and policy, tolerations, node selector and security
    context stay. What the launcher, which only starts other processes, must not claim a second time
    (resources, ports, probes, lifecycle, init containers) is removed.
    """
    name = launcher_name(context.key.name)
    spec = pod_spec(context, place)
    for field in DROPPED_FROM_POD:
        spec.pop(field, None)
    main = spec["containers"][0]
    for field in DROPPED_FROM_CONTAINER:
        main.pop(field, None)
    main["command"] = _command(context)
    _set_environment(context, place, main)
    if place.partition.pod_key:
        add_key(spec, [main], context.key.name, place.partition)
    mounts = _mounts(context, spec, name)
    add_mounts(main, mounts)
    init = _init_container(context, place, mounts)
    _add_account(spec, main, init)
    spec |= {
        "containers": [main],
        "initContainers": [init],
        "serviceAccountName": name,
    }
    spec.pop("serviceAccount", None)
    _add_pull_secrets(spec, context.options.launcher_pull_secrets)
    if len(name) > LONGEST_HOST:
        spec.setdefault("hostname", SHORT_HOSTNAME)  # mpirun crashes with a longer host name
    metadata = pod_metadata(context, place, name=name, role=ROLE_LAUNCHER, micro_ipus=0)
    return build_pod(metadata, spec)


def _add_pull_secrets(spec: Manifest, names: tuple[str, ...]) -> None:
    """Append the pull Secrets of the init container's image to the template's pull Secrets."""
    given = spec.get("imagePullSecrets") or []
    known = {secret.get("name") for secret in given}
    added = [{"name": name} for name in names if name not in known]
    if added:
        spec["imagePullSecrets"] = [*given, *added]


def _command(context: BuildContext) -> list[str]:
    if context.spec.launcher_command is not None:
        return list(context.spec.launcher_command)
    return sleep_command()  # the operator ends it: ttl may change while people are in it


def _set_environment(context: BuildContext, place: PodPlace, main: Manifest) -> None:
    own = {variable.get("name"): variable for variable in context.spec.launcher_env}
    inherited = [v for v in main.get("env") or [] if v.get("name") not in own]
    main["env"] = [*inherited, *own.values()]
    add_environment(main, ipu_environment(context, place) | OPEN_MPI | _interfaces(context))


def _interfaces(context: BuildContext) -> dict[str, str]:
    """Return the site's network interfaces for a command that names none: options in the command
    win."""
    chosen = context.options.mpi_interfaces
    kinds = ("btl", "oob") if chosen else ()
    return {f"OMPI_MCA_{kind}_tcp_if_include": chosen for kind in kinds}


def _mounts(context: BuildContext, spec: Manifest, name: str) -> list[Manifest]:
    items = [
        {"key": SCRIPT, "path": SCRIPT, "mode": 0o555},
        {"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444},
    ]
    add_volume(spec, mpi_volume(name, items, sleeps=context.spec.sleeps(ROLE_LAUNCHER)))
    add_volume(spec, {"name": KUBECTL_VOLUME, "emptyDir": {}})
    return [
        {"name": MPI_VOLUME, "mountPath": MPI_FOLDER, "readOnly": True},
        {"name": KUBECTL_VOLUME, "mountPath": KUBECTL_FOLDER},
    ]


def _add_account(spec: Manifest, *containers: Manifest) -> None:
    """The service account's files at their usual place, by a volume of our own: up to Kubernetes
    1.20 a pod that leaves it to the API server is refused until the account has a Secret, which
    takes a second or more. A mount of the template at that place wins."""
    sources: list[Manifest] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    spec["automountServiceAccountToken"] = False
    add_volume(spec, {"name": ACCOUNT_VOLUME, "projected": {"sources": sources}})
    mount = {"name": ACCOUNT_VOLUME, "mountPath": ACCOUNT_PATH, "readOnly": True}
    for container in containers:
        if all(m.get("mountPath") != ACCOUNT_PATH for m in container["volumeMounts"]):
            add_mounts(container, [mount])


def _init_container(context: BuildContext, place: PodPlace, mounts: list[Manifest]) -> Manifest:
    environment = {
        "IPUHUB_NAMESPACE": context.key.namespace,
        "IPUHUB_JOB": context.key.name,
        "IPUHUB_JOB_UID": context.key.uid,
        "IPUHUB_INSTANCE": str(place.instance),
        "IPUHUB_ATTEMPT": str(place.attempt),
        "IPUHUB_WORKERS": str(context.spec.total_workers),
        "IPUHUB_KUBECTL_FOLDER": KUBECTL_FOLDER,
    }
    if context.options.launcher_wait_seconds:
        environment["IPUHUB_LAUNCHER_WAIT_SECONDS"] = f"{context.options.launcher_wait_seconds:g}"
    resources = {"cpu": "100m", "memory": "128Mi"}
    return {
        "name": INIT_CONTAINER,
        "image": context.options.launcher_image,
        "imagePullPolicy": context.options.launcher_image_pull_policy,
        "command": ["ipuhub-launcher"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


OWN_LABELS = frozenset(pod_labels(JobKey("", "", ""), ROLE_WORKER, 0, 0))
_CONTAINERS = ("initContainers", "ephemeralContainers")


def overrides(spec: JobSpec) -> str:
    """Return, in one sentence, which parts of the template are not used; empty: all are used."""
    found = [*_metadata(spec.template.get("metadata") or {}), *_of_pods(spec.template["spec"])]
    if spec.has_launcher:
        found += [*_of_workers(spec.template["spec"]), *_of_launcher(spec.template["spec"])]
    return f"Not used as the template says: {'; '.join(found)}" if found else ""


def _metadata(template: Manifest) -> Iterator[str]:
    own = sorted(OWN_LABELS & {*(template.get("labels") or ())})
    if own:
        yield f"labels {', '.join(own)}, which the operator sets"
    if ANNOTATION_USAGE in (template.get("annotations") or {}):
        yield f"annotation {ANNOTATION_USAGE}, which the operator sets"


def _of_pods(pod: Manifest) -> Iterator[str]:
    policy = pod.get("restartPolicy")
    if policy not in {None, "Never"}:
        yield f"restartPolicy {policy} is Never (spec.restartPolicy restarts the job)"


def _of_workers(pod: Manifest) -> Iterator[str]:
    main = pod["containers"][0]
    fields = [name for name in ("command", "args") if main.get(name)]
    if fields:
        yield f"workers sleep instead of running {' and '.join(fields)} of container {main['name']}"


def _of_launcher(pod: Manifest) -> Iterator[str]:
    main, *others = pod["containers"]
    parts = [_named(kind, pod[kind]) for kind in _CONTAINERS if pod.get(kind)]
    parts += [_named("containers", others)] if others else []
    rest = [field for field in DROPPED_FROM_POD if field not in _CONTAINERS]
    parts += [f"{field} of the pod" for field in rest if pod.get(field)]
    dropped = [f for f in DROPPED_FROM_CONTAINER if main.get(f) and f != "args"]
    parts += [f"{', '.join(dropped)} of container {main['name']}"] if dropped else []
    if parts:
        yield f"the launcher goes without {', '.join(parts)}"
    account = pod.get("serviceAccountName") or pod.get("serviceAccount")
    if account:
        yield f"the launcher's serviceAccountName is its own, not {account}"
    if pod.get("automountServiceAccountToken") is False:
        yield "the launcher gets its service account's token all the same"


def _named(kind: str, containers: list[Manifest]) -> str:
    return f"{kind} {', '.join(str(container.get('name')) for container in containers)}"
