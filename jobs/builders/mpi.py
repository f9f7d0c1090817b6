"""domain: the ConfigMap that tells Open MPI the workers and how to reach them, and the launcher's
Role."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from jobs.builders.pods import SCRIPT, child_metadata
from jobs.ipujob.names import (
    GROUP,
    SHORT_HOST,
    host_names,
    launcher_name,
    needs_short_hosts,
    worker_name,
)

if TYPE_CHECKING:
    from jobs.builders.pods import BuildContext
    from jobs.ipujob.names import Manifest

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
                # kubectl execs by WebSocket, a GET; older ones by SPDY, a POST.
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
