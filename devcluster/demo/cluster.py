"""io: prepares a cluster for IPUHub: CRD, accounts, roles, and a kubeconfig per process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from ipuhub.certificates import write_private
from ipuhub.kube import resources
from ipuhub.kube.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

_MANIFESTS: Final = Path(__file__).parent / "manifests"
CRD_FILE: Final = _MANIFESTS / "graphcore.ai_ipujobs.yaml"
"""A link to the chart's file, which a wheel carries as a file."""
ACCESS_FILE: Final = _MANIFESTS / "access.yaml"
"""The rights of each IPUHub process."""
ACTIONS_FILE: Final = _MANIFESTS / "actions.yaml"
"""As whom the dashboard's user acts, and what that user may do."""
KEYS_FILE: Final = _MANIFESTS / "keys.yaml"
"""Additional rights of the operator if V-IPU has keys for the pods of jobs."""
STAND_INS_FILE: Final = _MANIFESTS / "stand-ins.yaml"
"""The rights of the demo's stand-in nodes."""
PROCESS_MODE_FILE: Final = _MANIFESTS / "stand-ins-processes.yaml"
"""Their additional rights if they run the pods' commands."""
# The CRD has 190 kB, which the pure Python loader reads in seconds.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TOKEN_SECONDS: Final = 24 * 3600
_RESOURCES: Final = {
    resource.kind: resource
    for resource in (
        resources.NAMESPACES,
        resources.SERVICE_ACCOUNTS,
        resources.ROLES,
        resources.ROLE_BINDINGS,
        resources.CLUSTER_ROLES,
        resources.CLUSTER_ROLE_BINDINGS,
        resources.CUSTOM_RESOURCE_DEFINITIONS,
        resources.MUTATING_WEBHOOKS,
        resources.VALIDATING_WEBHOOKS,
    )
}


async def apply_file(client: KubeClient, path: Path) -> None:
    """Create what the file holds; what is there already gets the file's fields."""
    text = path.read_text(encoding="utf-8")
    for manifest in yaml.load_all(text, Loader=_Loader):  # it is a safe loader
        await apply_manifest(client, manifest)


async def write_account_kubeconfig(
    client: KubeClient, admin_kubeconfig: Path, folder: Path, account: str
) -> Path:
    """Write a kubeconfig that acts as service account `namespace/name`; return its path.

    The token stands in a file of its own beside it, so that a new token can replace it while the
    process runs (`refresh_token`).
    """
    token_file = await refresh_token(client, folder, account)
    config = yaml.safe_load(admin_kubeconfig.read_text(encoding="utf-8"))
    name = account.rpartition("/")[2]
    config["users"] = [{"name": name, "user": {"tokenFile": str(token_file.resolve())}}]
    cluster = config["clusters"][0]["name"]
    config["contexts"] = [{"name": name, "context": {"cluster": cluster, "user": name}}]
    config["current-context"] = name
    path = folder / f"{name}.kubeconfig"
    _write_private(path, yaml.safe_dump(config))
    return path


async def refresh_token(client: KubeClient, folder: Path, account: str) -> Path:
    """Put a new token of `account` (valid for TOKEN_SECONDS) into its file; return the file."""
    namespace, _, name = account.partition("/")
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    path = resources.SERVICE_ACCOUNTS.path(namespace, name, "token")
    answer = await client.request("POST", path, body=body)
    token_file = folder / f"{name}.token"
    _write_private(token_file, answer["status"]["token"])
    return token_file


async def apply_manifest(client: KubeClient, manifest: Manifest) -> None:
    """Create the object, or give it the manifest's fields where it is there already."""
    resource = _RESOURCES[manifest["kind"]]
    name, namespace = manifest["metadata"]["name"], manifest["metadata"].get("namespace")
    try:
        await client.patch(resource, name, manifest, namespace)
    except NotFound:
        try:
            await client.create(resource, manifest)
        except AlreadyExists:
            await client.patch(resource, name, manifest, namespace)


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, text.encode())
