"""domain: what the tracker's writer tells about itself; the proxy makes metrics of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partitions.proxy.tracker import TrackerEntry


class StoreMeasures:
    """Hears of each write, and keeps nothing."""

    def written(self, changes: int, seconds: float) -> None:
        """So many callers' changes went out together."""

    def conflicted(self) -> None:
        """Somebody else has changed the tracker."""

    def changed(self, before: TrackerEntry | None, after: TrackerEntry | None) -> None:
        """An entry is another one now; None: it was not, or is no longer."""


KEEPS_NOTHING = StoreMeasures()
