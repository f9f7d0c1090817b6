"""A cluster of very many large objects, made as their pages are read, and the memory that takes."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ipuhub.kube.client import KubeClient
from ipuhub.kube.credentials import ClusterConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipuhub.kube.transport import Request


class ManyObjects(KubeClient):
    """Answers every list with `count` objects; `build` makes the object of each number."""

    def __init__(self, count: int, build: Callable[[int], dict[str, Any]]) -> None:
        super().__init__(ClusterConfig("http://127.0.0.1:1"))
        self._count, self._build = count, build

    async def _timed(self, verb: str, plural: str, request: Request) -> Any:
        assert verb == "list", plural
        params = request.params or {}
        begin, size = int(params.get("continue", 0)), int(params["limit"])
        end = min(begin + size, self._count)
        last = {} if end == self._count else {"continue": str(end)}
        return {"metadata": last, "items": [self._build(number) for number in range(begin, end)]}


@contextmanager
def memory_below(most_bytes: int) -> Iterator[None]:
    """Fail if the block holds more memory at any time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most_bytes
