"""The floor: the writes that a job needs, issued with no logic at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ipuhub.kube import resources
from jobs.resources import IPUJOBS

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.types import Manifest


async def write_job(client: KubeClient, namespace: str, name: str, *, launcher: bool) -> None:
    """Write what the operator writes for one job with one worker, in its order."""
    first = [create(client, pod(namespace, f"{name}-worker-0"))]
    if launcher:
        await asyncio.gather(
            *(create(client, manifest) for manifest in access(namespace, f"{name}-launcher"))
        )
    await asyncio.gather(*first)
    if launcher:
        await create(client, pod(namespace, f"{name}-launcher"))
    for phase in ("Pending", "Running", "Running"):
        body = {"status": {"launcherStatus": phase, "desiredReplicas": 1, "lastMessage": phase}}
        await client.patch(IPUJOBS, name, body, namespace, subresource="status")


async def create(client: KubeClient, manifest: Manifest) -> None:
    """Create one object of a kind that the floor writes."""
    await client.create(_KINDS[manifest["kind"]], manifest)


_KINDS = {
    "ConfigMap": resources.CONFIG_MAPS,
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "Role": resources.ROLES,
    "RoleBinding": resources.ROLE_BINDINGS,
    "Pod": resources.PODS,
}


def access(namespace: str, name: str) -> list[Manifest]:
    """ConfigMap, ServiceAccount, Role and RoleBinding of a launcher, about as large."""
    meta = {"name": name, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": rbac, "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "y" * 600}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def pod(namespace: str, name: str) -> Manifest:
    """Return a pod about as large as the operator's."""
    env: list[dict[str, Any]] = [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(8)]
    container = {"name": "main", "image": "resnet:latest", "env": env, "command": ["sleep", "9"]}
    meta = {"name": name, "namespace": namespace, "labels": {"bench": "floor"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
