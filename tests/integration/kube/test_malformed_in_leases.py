"""Objects with malformed fields, named in the Lease of the replica that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devcluster.server import DevCluster
from ipuhub import VERSION_ANNOTATION, __version__
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.malformed import ANNOTATION, MalformedObjects, read_annotation
from ipuhub.kube.resources import LEASES, PODS
from tests.fakes.leases import LEASE, QUICK, Replica
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client of an API server of the test's own."""
    server = DevCluster(tmp_path / "cluster")
    await server.start()
    async with KubeClient(load_config(str(server.kubeconfig))) as opened:
        yield opened
    await server.stop()


async def annotations(client: KubeClient) -> dict[str, str]:
    held = await client.get(LEASES, LEASE, "default")
    return dict(held["metadata"]["annotations"])


async def test_a_lease_names_what_its_replica_read_until_another_takes_it(
    client: KubeClient,
) -> None:
    first = Replica(client, "default", "a", [], QUICK)
    await first.until_works()
    assert await annotations(client) == {VERSION_ANNOTATION: __version__}
    metadata = {"name": "bert", "namespace": "team-a"}
    client.readable(PODS, {"metadata": metadata, "status": {"phase": 1}})
    found = await eventually(lambda: annotations(client), lambda names: ANNOTATION in names)
    assert read_annotation(found[ANNOTATION]) == (1, ("Pod team-a/bert: status.phase",))
    assert found[VERSION_ANNOTATION] == __version__
    await first.stop()
    client.malformed = MalformedObjects()  # as of another process
    second = Replica(client, "default", "b", [], QUICK)
    await second.until_works()
    assert await annotations(client) == {VERSION_ANNOTATION: __version__}
    await second.stop()
