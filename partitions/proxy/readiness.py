"""domain: how long partitions take to become ACTIVE, learned, so as to look when it is time."""

from __future__ import annotations

from typing import Final

_SHORTER: Final = 0.9
_FIRST_SECONDS: Final = 0.05


class Readiness:
    """What is known of the time that controllers take to create and to reset partitions.

    Looking too early costs controller and proxy a call, too late costs a job the time: the next
    first look comes a little earlier after each that was in time, and later after one too early.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, bool], float] = {}

    def first_look_seconds(self, controller: str, *, is_reset: bool) -> float:
        """When to look for the first time, counted from the controller's acceptance.

        0: at once, since nothing is known yet.
        """
        return self._seconds.get((controller, is_reset), 0.0)

    def learn(self, controller: str, seconds: float, looks: int, *, is_reset: bool) -> None:
        """A partition was found ACTIVE at look number `looks`, so long after its acceptance.

        A single one that took very long does not make all that follow wait as long.
        """
        known = self.first_look_seconds(controller, is_reset=is_reset)
        slower = min(seconds, 2 * known + _FIRST_SECONDS)
        self._seconds[controller, is_reset] = slower if looks > 1 else known * _SHORTER
