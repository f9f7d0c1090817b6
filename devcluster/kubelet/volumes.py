"""io: binds volume claims, in place of the volume controllers: to an existing volume, else to a new
one.

Storage classes are ignored, because the demo has only one kind of storage.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog

from devcluster.schemas.validation import stored_thousandths
from ipuhub.kube.errors import ApiError, Conflict, NotFound
from ipuhub.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devcluster.kubelet.world import World
    from ipuhub.kube.resources import Manifest

HOLD: Final = "sim/unbound"
"""Annotation of a claim that is to stay unbound: "true"."""
_COMPLETED: Final = {"pv.kubernetes.io/bind-completed": "yes"}


def needs_volume(claim: Mapping[str, Any]) -> bool:
    """Return whether the claim is to be bound now."""
    metadata = claim["metadata"]
    held = (metadata.get("annotations") or {}).get(HOLD) == "true"
    bound = (claim.get("status") or {}).get("phase") == "Bound"
    return not held and not bound and not metadata.get("deletionTimestamp")


def choose_volume(
    claim: Mapping[str, Any], volumes: Iterable[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The volume that is this claim's already, else the smallest free volume that is large
    enough."""
    fitting = [volume for volume in volumes if _fits(claim, volume)]
    return min(fitting, key=lambda volume: _preference(claim, volume), default=None)


def _fits(claim: Mapping[str, Any], volume: Mapping[str, Any]) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    owner = spec.get("claimRef")
    if owner:
        mine = (owner.get("namespace"), owner.get("name")) == _key(claim)
        return mine and owner.get("uid") in {None, claim["metadata"]["uid"]}
    if wanted.get("volumeName"):
        return bool(volume["metadata"]["name"] == wanted["volumeName"])
    modes = set(wanted.get("accessModes") or ())
    return modes <= set(spec.get("accessModes") or ()) and _size(volume) >= _wanted(claim)


def _preference(claim: Mapping[str, Any], volume: Mapping[str, Any]) -> tuple[bool, bool, int, str]:
    spec = volume["spec"]
    classes = (spec.get("storageClassName") or "", claim["spec"].get("storageClassName") or "")
    other_class = classes[0] != classes[1]
    return not spec.get("claimRef"), other_class, _size(volume), volume["metadata"]["name"]


def build_volume(claim: Mapping[str, Any]) -> dict[str, Any]:
    """A new volume for a claim that no present one fits."""
    metadata, spec = claim["metadata"], claim["spec"]
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "1Gi")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{metadata['uid']}"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.get("storageClassName") or "",
            "hostPath": {"path": f"/sim/{metadata['namespace']}/{metadata['name']}"},
            "claimRef": claim_reference(claim),
        },
    }


def claim_reference(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The reference by which a volume belongs to a claim."""
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def build_claim_patch(volume: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch that gives the claim its volume."""
    return {
        "metadata": {"annotations": _COMPLETED},
        "spec": {"volumeName": volume["metadata"]["name"]},
    }


def build_claim_status(volume: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch of the claim's status once it is bound."""
    spec = volume["spec"]
    return {
        "status": {
            "phase": "Bound",
            "accessModes": spec.get("accessModes") or [],
            "capacity": spec.get("capacity") or {},
        }
    }


def _key(claim: Mapping[str, Any]) -> tuple[str, str]:
    return claim["metadata"]["namespace"], claim["metadata"]["name"]


def _size(volume: Mapping[str, Any]) -> int:
    return stored_thousandths((volume["spec"].get("capacity") or {}).get("storage", "0"))


def _wanted(claim: Mapping[str, Any]) -> int:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return stored_thousandths(requests.get("storage", "0"))


def is_provisioned(volume: Mapping[str, Any]) -> bool:
    """Return whether the volume was made for its claim and goes with it."""
    owner = volume["spec"].get("claimRef") or {}
    return bool(volume["metadata"]["name"] == f"pvc-{owner.get('uid')}")


def is_abandoned(volume: Mapping[str, Any], claims: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the volume was bound to a claim that no longer exists."""
    owner = volume["spec"].get("claimRef") or {}
    uid = owner.get("uid")
    return bool(uid) and all(claim["metadata"]["uid"] != uid for claim in claims)


log = structlog.get_logger(__name__)
_RETRY_SECONDS: Final = 2.0


class ClaimBinder:
    """Gives each claim a volume, and frees the volumes of deleted claims."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = asyncio.Event()
        self._bound: set[str] = set()
        world.claims.add_handler(lambda _old, _new: self._changed.set())
        world.volumes.add_handler(lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """Bind until cancelled."""
        await self._world.claims.wait_synced()
        await self._world.volumes.wait_synced()
        while True:
            self._changed.clear()
            try:
                await self.bind_all()
            except ApiError as error:
                log.warning("will try again", work="claims", problem=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            await self._changed.wait()

    async def bind_all(self) -> None:
        """Free the volumes of deleted claims, then bind every claim that needs a volume."""
        world = self._world
        volumes = {volume["metadata"]["name"]: volume for volume in world.volumes.all()}
        for volume in list(volumes.values()):
            if is_abandoned(volume, world.claims.all()):
                await self._release(volume)
        for claim in world.claims.all():
            uid = claim["metadata"]["uid"]
            # The copy shows our own writes a moment later.
            if needs_volume(claim) and uid not in self._bound:
                volume = await self._bind(claim, volumes)
                volumes[volume["metadata"]["name"]] = volume
                self._bound.add(uid)

    async def _bind(self, claim: Manifest, volumes: dict[str, Manifest]) -> Manifest:
        client, metadata = self._world.client, claim["metadata"]
        volume = choose_volume(claim, volumes.values())
        if volume is None:
            volume = await client.create(PERSISTENT_VOLUMES, build_volume(claim))
        name = volume["metadata"]["name"]
        reference = {"spec": {"claimRef": claim_reference(claim)}}
        volume = await client.patch(PERSISTENT_VOLUMES, name, reference)
        bound = {"status": {"phase": "Bound"}}
        await client.patch(PERSISTENT_VOLUMES, name, bound, subresource="status")
        where = (metadata["name"], metadata["namespace"])
        patch = build_claim_patch(volume)
        await client.patch(PERSISTENT_VOLUME_CLAIMS, where[0], patch, where[1])
        status = build_claim_status(volume)
        await client.patch(
            PERSISTENT_VOLUME_CLAIMS, where[0], status, where[1], subresource="status"
        )
        log.info("claim bound", claim=metadata["name"], volume=name)
        return volume

    async def _release(self, volume: Manifest) -> None:
        client, name = self._world.client, volume["metadata"]["name"]
        try:
            if is_provisioned(volume):
                await client.delete(PERSISTENT_VOLUMES, name, uid=volume["metadata"]["uid"])
                return
            await client.patch(PERSISTENT_VOLUMES, name, {"spec": {"claimRef": None}})
            free = {"status": {"phase": "Available"}}
            await client.patch(PERSISTENT_VOLUMES, name, free, subresource="status")
        except (NotFound, Conflict):
            return
