"""io: a number of workers on one key queue, with retries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from ipuhub.kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from ipuhub.kube.workqueue import WorkQueue

    K = TypeVar("K", bound=Hashable)

log = structlog.get_logger(__name__)


async def run_workers(
    queue: WorkQueue[K], handle: Callable[[K], Awaitable[None]], count: int, name: str
) -> None:
    """Hand keys to `handle`, `count` at a time, until cancelled; failures are tried again."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_work(queue, handle, name))


async def _work(queue: WorkQueue[Any], handle: Callable[[Any], Awaitable[None]], name: str) -> None:
    while True:
        key = await queue.get()
        try:
            await handle(key)
            queue.forget(key)
        except ApiError as error:
            if queue.failures(key) == 0:
                log.warning("will try again", work=name, key=key, problem=str(error))
            queue.add_rate_limited(key)
        except Exception:  # one odd object must not stop the others
            log.exception("will try again", work=name, key=key)
            queue.add_rate_limited(key)
        finally:
            queue.done(key)
