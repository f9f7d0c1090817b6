"""domain: what the launcher pod may do: see the job's pods and run commands in its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.builders.context import child_metadata
from jobs.ipujob.names import GROUP, launcher_name, worker_name

if TYPE_CHECKING:
    from jobs.builders.context import BuildContext
    from jobs.ipujob.manifests import Manifest

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
