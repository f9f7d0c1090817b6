"""glue: what every process has: its settings about leadership, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings

from ipuhub.kube.lease import LeadershipLost, LeaseTiming
from ipuhub.leading import LeadershipOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

log = structlog.get_logger(__name__)


def run(process: Coroutine[Any, Any, None]) -> None:
    """Run a process to its end. One that may no longer lead ends with 1: somebody starts it again,
    and it stands by."""
    try:
        asyncio.run(process)
    except LeadershipLost as error:
        log.error("stopped: another replica may lead by now", problem=str(error))  # noqa: TRY400
        sys.exit(1)


async def until_stopped(work: Awaitable[None]) -> None:
    """Run `work` until it ends or the process is asked to stop; then cancel it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def leadership_options(lease: str) -> LeadershipOptions | None:
    """The settings about leader election; None: it is off. Raises ConfigError for bad times."""
    if not settings.LEADER_ELECTION:
        return None
    timing = LeaseTiming(
        settings.LEASE_DURATION_SECONDS, settings.LEASE_RENEW_SECONDS, settings.LEASE_RETRY_SECONDS
    )
    identity = settings.IDENTITY or f"{socket.gethostname()}_{secrets.token_hex(4)}"
    return LeadershipOptions(settings.NAMESPACE, lease, identity, timing)
