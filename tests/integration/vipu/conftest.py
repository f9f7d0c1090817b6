"""A real vipu-server on a free port, a clock that only tests move, a client for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.client import VipuClient
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from tests.fakes.waiting import wait_until
from tests.integration.vipu.agentmachines import Machine
from tests.integration.vipu.securesite import made_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.integration.vipu.securesite import Site


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "state" / "vipu-server.json"


@pytest.fixture(params=["told", "published"])
def published_only(request: pytest.FixtureRequest) -> bool:
    """Return whether IPUs report only what the published interface knows."""
    return bool(request.param == "published")


@pytest.fixture
def start_server(
    clock: Clock, storage: Path, published_only: bool
) -> Iterator[Callable[..., tuple[VipuServer, int]]]:
    """start_server(**options) -> the server and its port; all are stopped at the end."""
    servers: list[VipuServer] = []

    def start(**options: object) -> tuple[VipuServer, int]:
        defaults = {"storage": storage, "port": 0, "published_attributes_only": published_only}
        server = VipuServer(ServerOptions(**{**defaults, **options}), clock)
        servers.append(server)
        return server, server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(start_server: Callable[..., tuple[VipuServer, int]]) -> tuple[VipuServer, int]:
    return start_server()


@pytest.fixture
async def client(server: tuple[VipuServer, int]) -> AsyncIterator[VipuClient]:
    async with VipuClient(f"127.0.0.1:{server[1]}") as client:
        yield client


@pytest.fixture
def machines() -> Iterator[Callable[..., list[Machine]]]:
    """machines(count) -> that many agents that listen, killed at the end."""
    running: list[Machine] = []

    def start(count: int, *options: str, latency: float = 0.05) -> list[Machine]:
        begun = [Machine(latency, *options) for _ in range(count)]
        running.extend(begun)
        for each in begun:  # a server with a short patience would take a late agent for lost
            wait_until(each.listens, f"agent {each.address} listens")
        return begun

    yield start
    for machine in running:
        machine.kill()


@pytest.fixture
async def site(
    start_server: Callable[..., tuple[VipuServer, int]], tmp_path: Path, clock: Clock
) -> Site:
    """A secure server with users, partitions and the key of a pod."""
    return await made_site(start_server, tmp_path / "tls", clock)
