"""io: reads from a cluster what may have been made before usage was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipuhub.kube.errors import Forbidden, NotFound
from ipuhub.kube.resources import NAMESPACES, PODS, Resource
from usage.legacy.patches import GROUP_LABEL, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.blocking import BlockingKubeClient

_DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
_IPUJOBS: Final = Resource("graphcore.ai", "v1alpha1", "ipujobs", "IPUJob")
_PHJOBS: Final = Resource("primehub.io", "v1alpha1", "phjobs", "PhJob")
_PHDEPLOYMENTS: Final = Resource("primehub.io", "v1alpha1", "phdeployments", "PhDeployment")


def read_world(
    client: BlockingKubeClient,
    namespace: str | None,
    note: Callable[[str], None],
    *,
    everything: bool,
) -> World:
    """Return what `namespace` (None: the cluster) has; kinds that are not installed are noted.

    Raises ApiError where something that is there may not be read.
    """

    def listed(resource: Resource) -> list[Any]:
        try:
            return client.list(resource, namespace).items
        except NotFound:
            kind = f"{resource.plural}.{resource.group}"
            note(f"{kind} are not installed here: none are looked for.")
            return []

    return World(
        pods=listed(PODS),
        deployments=listed(_DEPLOYMENTS),
        ipujobs=listed(_IPUJOBS),
        phjobs=listed(_PHJOBS),
        phdeployments=listed(_PHDEPLOYMENTS),
        groups=_groups(client, note),
        everything=everything,
    )


def _groups(client: BlockingKubeClient, note: Callable[[str], None]) -> dict[str, str]:
    try:
        namespaces = client.list(NAMESPACES).items
    except Forbidden:
        note("Namespaces may not be read: each counts as its own group.")
        return {}
    found = {}
    for each in namespaces:
        labels = each["metadata"].get("labels") or {}
        found[each["metadata"]["name"]] = labels.get(GROUP_LABEL, "")
    return found
