"""io: delays low-priority requests until there is no burst of other requests.

During a burst everything waits for the API server. A low-priority request waits for a lull or for
its timeout, whichever comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class LowPriorityGate:
    """Counts urgent operations in progress; a lull is a time without any.

    Without a lull, waiting operations continue after `patience_seconds`.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._urgent = 0
        self._has_come = asyncio.Event()
        self._has_come.set()

    def begin(self) -> Callable[[], None]:
        """Count something urgent until the returned function is called; further calls of it change
        nothing."""
        self._urgent += 1
        self._has_come.clear()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            self._urgent -= 1
            if not self._urgent:
                self._has_come.set()

        return end

    def due(self) -> float:
        """Return the time of the event loop at which an operation requested now continues at the
        latest."""
        return asyncio.get_running_loop().time() + self._patience_seconds

    async def wait(self, due: float) -> None:
        """Wait for a lull, at the longest until `due`."""
        if self._has_come.is_set() or due <= asyncio.get_running_loop().time():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._has_come.wait()
