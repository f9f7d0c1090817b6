"""Waiting in tests for what other tasks do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


async def eventually(read: Callable[[], Any], *, seconds: float = 90.0) -> Any:
    """The first true answer of `read`, which may be asynchronous."""
    async with asyncio.timeout(seconds):
        while True:
            answer = read()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.05)
