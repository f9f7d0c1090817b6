"""io: exponential backoff with jitter.

The random numbers come from the system, not from Python's global generator: Hypothesis seeds that
generator, and jitter drawn on another thread made its strategies look unrepeatable.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


def exponential(attempt: int, *, base: float, maximum: float) -> float:
    """Return the seconds to wait after failure `attempt` (0 is the first): doubling, bounded."""
    # 2.0**1024 overflows; long before that the maximum decides.
    return min(base * 2.0 ** min(max(attempt, 0), 64), maximum)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling waits between `first_seconds` and `max_seconds`, each spread over a factor of two.

    The spread keeps many clients of a server from returning at the same moment.
    """

    first_seconds: float = 0.8
    max_seconds: float = 30.0

    def delay_seconds(self, attempt: int, spread: float) -> float:
        """Return the wait after failure `attempt` (0 is the first).

        `spread` is a random number in [0, 1).
        """
        low = exponential(attempt, base=self.first_seconds, maximum=self.max_seconds / 2)
        return min(low * (1.0 + spread), self.max_seconds)


_SYSTEM = random.SystemRandom()


def jitter() -> float:
    """Return a random number in [0, 1)."""
    return _SYSTEM.random()


def between(low: float, high: float) -> float:
    """Return a random number from `low` to `high`."""
    return _SYSTEM.uniform(low, high)
