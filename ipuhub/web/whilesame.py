"""io: values that are computed once, and kept while what they are computed from stays the same.

A reading of another process is the same object while nothing changes there. So whether the objects
are the same tells at no cost what a comparison of thousands of values would tell.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class _Kept(Generic[_T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    sources: tuple[object, ...] = ()
    value: tuple[_T, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def holds(self, sources: tuple[object, ...], now: datetime) -> bool:
        """Return whether the value is of these very objects, and holds now."""
        if not self.value or self.since is None or len(sources) != len(self.sources):
            return False
        if any(a is not b for a, b in zip(sources, self.sources, strict=True)):
            return False
        return self.since <= now and (self.until is None or now < self.until)


class WhileSame(Generic[_K, _T]):
    """Values by key, each with the objects that it was computed from; the last `most` are kept.

    One thread computes a value, and others who ask for it wait. Values are shared: do not change
    them.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._kept: dict[_K, _Kept[_T]] = {}
        self._lock = threading.Lock()

    def get(
        self,
        key: _K,
        sources: tuple[object, ...],
        now: datetime,
        build: Callable[[], tuple[_T, datetime | None]],
    ) -> _T:
        """Return the value of `sources` at `now`. `build` returns it, and when time alone changes
        it (None: never)."""
        kept = self._of(key)
        with kept.lock:
            if not kept.holds(sources, now):
                value, until = build()
                kept.sources, kept.since, kept.until = sources, now, until
                # An equal value stays the same object, for values that are computed from it.
                kept.value = kept.value if kept.value == (value,) else (value,)
            return kept.value[0]

    def _of(self, key: _K) -> _Kept[_T]:
        with self._lock:
            kept = self._kept.pop(key, None) or _Kept()
            self._kept[key] = kept
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
            return kept
