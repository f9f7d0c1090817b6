"""glue: says beside what is left of the record that older rows were purged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.db.models import Max

from usage.models import PurgeState

if TYPE_CHECKING:
    from datetime import date

    from django.http.response import HttpResponseBase

HEADER: Final = "Purged-Before"


def purged_before() -> date | None:
    """Return the day before which lifetimes were purged; None: none ever."""
    # A purge of gaps and faults alone has the year 1970.
    of_lifetimes = PurgeState.objects.filter(purged_before__year__gt=1970)
    found: date | None = of_lifetimes.aggregate(last=Max("purged_before"))["last"]
    return found


def say_purged(answer: HttpResponseBase) -> None:
    """Put it into a header of an answer that lists lifetimes."""
    if day := purged_before():
        answer[HEADER] = day.isoformat()
