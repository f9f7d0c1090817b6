"""The cache when its server stops, forgets its history and comes back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import Unreachable
from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import CONFIG_MAPS

from .conftest import BRISK

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.embedded_only


async def names_when(informer: Informer, name: str) -> set[str]:
    """Wait until `name` is in the cache; return all names there."""
    arrived = asyncio.Event()

    def look(_old: object, new: dict[str, Any] | None) -> None:
        if new and new["metadata"]["name"] == name:
            arrived.set()

    informer.add_handler(look)
    await asyncio.wait_for(arrived.wait(), 90)
    return {m["metadata"]["name"] for m in informer.all()} - {"kube-root-ca.crt"}


async def test_a_cache_has_the_truth_after_its_server_came_back_without_its_history(
    tmp_path: Path,
) -> None:
    first = DevCluster(tmp_path)
    await first.start()
    port = int(first.url.rpartition(":")[2])
    async with KubeClient(load_config(str(first.kubeconfig))) as client:

        async def create(name: str) -> None:
            await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")

        informer = Informer(client, CONFIG_MAPS, namespace="default", pace=BRISK)
        following = asyncio.create_task(informer.run())
        await create("stays")
        await create("goes")
        await names_when(informer, "goes")

        await first.stop()
        with pytest.raises(Unreachable):
            await create("nobody-there")

        second = DevCluster(tmp_path, port=port)
        await second.start()
        await client.delete(CONFIG_MAPS, "goes", "default")
        await create("new")
        assert await names_when(informer, "new") == {"stays", "new"}
        assert informer.problem == ""

        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
    await second.stop()
