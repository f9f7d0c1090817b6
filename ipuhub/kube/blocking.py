"""io: the API client for synchronous callers: one background thread runs its event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ipuhub.kube.client import KubeClient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ipuhub.kube.credentials import ClusterConfig

T = TypeVar("T")


class BlockingKubeClient:
    """Runs the verbs of a `KubeClient`, with their parameters and errors, as ordinary calls.

    Usable from many threads at once. Use it as a context manager, or call `close`; not from code
    that runs in an event loop.
    """

    def __init__(self, config: ClusterConfig, *, timeout_seconds: float = 30.0) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ipuhub-kube", daemon=True
        )
        self._thread.start()
        self.client = KubeClient(config, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self.run(self.client.close)
        self.run(self._loop.shutdown_default_executor)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        """Run any coroutine function in the client's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop).result()
