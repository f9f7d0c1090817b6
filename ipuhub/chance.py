"""io: random numbers for jitter.

They come from the system and never from Python's global generator: that one belongs to whoever
seeds it. Hypothesis does, and a jitter drawn on another thread made its strategies look
unrepeatable.
"""

from __future__ import annotations

import random

_SYSTEM = random.SystemRandom()


def jitter() -> float:
    """A random number in [0, 1)."""
    return _SYSTEM.random()


def between(low: float, high: float) -> float:
    """A random number from `low` to `high`."""
    return _SYSTEM.uniform(low, high)
