"""domain: how long the administrator lets interactive jobs last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Seconds of `interactive.ttl`: `default_seconds` where a job says nothing (0: it must say),
    `maximum_seconds` at most (0: there is no limit)."""

    default_seconds: int = 0
    maximum_seconds: int = 0

    def allowed(self, seconds: int) -> int:
        """The value nearest to `seconds` that is within the limit."""
        return min(seconds, self.maximum_seconds) if self.maximum_seconds else seconds


UNLIMITED = SessionLimits()
