"""domain: what the operator's passes tell about themselves; `jobs.operator.metrics` makes metrics
of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.ipujob.manifests import Manifest
    from jobs.operator.actions import Action, PatchStatus


class Measures:
    """Hears of each pass and action, and keeps nothing."""

    def passed(self, outcome: str, seconds: float) -> None:
        """A pass has ended: done, failed, deferred (the caches are behind), gone or crashed."""

    def acted(self, action: Action, seconds: float, error: BaseException | None) -> None:
        """An action has been carried out, or has failed."""

    def decided(self, job: Manifest, patch: PatchStatus) -> None:
        """A status has been written; `job` is what it was before."""

    def untold(self, count: int) -> None:
        """So many Events will not be written: there was no room, or no time, for them."""


KEEPS_NOTHING = Measures()
