"""io: word that a Lease has changed, for who waits for it: a reason to look, never one to act."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from ipuhub.backoff import Backoff
from ipuhub.chance import jitter
from ipuhub.kube.errors import ApiError, Gone
from ipuhub.kube.resources import LEASES
from ipuhub.kube.watch import Scope, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipuhub.kube.client import KubeClient

log = structlog.get_logger(__name__)
_BACKOFF = Backoff(first_seconds=0.8, max_seconds=60.0)


@asynccontextmanager
async def lease_changes(
    client: KubeClient, namespace: str, name: str
) -> AsyncIterator[asyncio.Event]:
    """An event that is set at each change of the Lease; who waits for it clears it.

    A change may be missed, and a server that lets nobody watch is told of in the log only: who
    waits looks by himself, too.
    """
    changed = asyncio.Event()
    task = asyncio.create_task(_follow(client, namespace, name, changed))
    try:
        yield changed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(client: KubeClient, namespace: str, name: str, changed: asyncio.Event) -> None:
    # Named by a field selector, or the right to watch this one Lease would not do.
    scope = Scope(LEASES, namespace, field_selector=f"metadata.name={name}")
    failures = 0
    while True:
        try:
            # From what there is now, which needs no right to list.
            async with aclosing(Watch(client, scope, "").events()) as events:
                async for event in events:
                    failures = 0
                    if event.type != "BOOKMARK":
                        changed.set()
        except ApiError as error:
            if not failures and not isinstance(error, Gone):
                log.warning("cannot watch the Lease", lease=name, problem=str(error))
        await asyncio.sleep(_BACKOFF.delay_seconds(failures, jitter()))
        failures += 1
