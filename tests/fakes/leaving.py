"""A client that disconnects before its request is complete."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

LOOPS = 50  # of the event loop: the server has read what was sent and waits for more


async def leave_after(url: str, sent: bytes, context: ssl.SSLContext | None = None) -> None:
    """Send the beginning of a request to a server of this event loop, and hang up."""
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    writer.write(sent)
    for _ in range(LOOPS):
        await asyncio.sleep(0)
    writer.transport.abort()
    for _ in range(LOOPS):
        await asyncio.sleep(0)
