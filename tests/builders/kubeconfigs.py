"""Kubeconfigs as files, and exec plug-ins for them."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

import yaml

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import SERVICE_ACCOUNTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_kubeconfig(
    path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], **context: str
) -> str:
    """Write a kubeconfig with one context and return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": dict(cluster)}],
        "users": [{"name": "u", "user": dict(user)}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "main",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def write_account_kubeconfig(admin: Path, path: Path, account: str) -> None:
    """Write a kubeconfig that acts as service account `namespace/name`; `admin`: an admin's."""
    namespace, _, name = account.partition("/")
    place = SERVICE_ACCOUNTS.path(namespace, name, "token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    async with KubeClient(load_config(str(admin))) as client:
        answer = await client.request("POST", place, body=body)
    cluster = yaml.safe_load(admin.read_text())["clusters"][0]["cluster"]
    write_kubeconfig(path, cluster, {"token": answer["status"]["token"]})


def plug_in(folder: Path, status_code: str, name: str = "login.py") -> dict[str, Any]:
    """Write an exec plug-in that counts its runs in `runs` and prints `status_code`'s value."""
    script = folder / name
    script.write_text(
        "import json, os, pathlib, sys\n"
        f"runs = pathlib.Path({str(folder / 'runs')!r})\n"
        "count = len(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text('x' * count)\n"
        f"status = {status_code}\n"
        "version = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['apiVersion']\n"
        "print(json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status}))\n"
    )
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(script)]}}
