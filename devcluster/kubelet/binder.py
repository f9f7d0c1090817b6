"""io: binds volume claims, in the place of the volume controllers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from devcluster.kubelet.volumes import (
    build_claim_patch,
    build_claim_status,
    build_volume,
    choose_volume,
    claim_reference,
    is_abandoned,
    is_provisioned,
    needs_volume,
)
from ipuhub.kube.errors import ApiError, Conflict, NotFound
from ipuhub.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

if TYPE_CHECKING:
    from devcluster.kubelet.world import World
    from ipuhub.kube.types import Manifest

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
        """Free what deleted claims held, then bind every claim that needs a volume."""
        world = self._world
        volumes = {one["metadata"]["name"]: one for one in world.volumes.all()}
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
