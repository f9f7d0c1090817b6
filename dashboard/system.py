"""glue: the system page for administrators: components that are down, progress of recording and
sums."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Count, Max, Sum
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.components import steady
from dashboard.health import read_components
from ipuhub.models import RecordFault, WatchCheckpoint, WatchGap
from ipuhub.web.access import require_admin, signed_in
from ipuhub.web.columns import Column
from ipuhub.web.exports import export, known_format
from ipuhub.web.filters import BadFilter
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.readings import STALE_SECONDS
from ipuhub.web.requests import live_page
from usage.models import MonitorRound, PodLifetime, PurgeState, RollupDirt, RollupState

if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypeAlias

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    Shown: TypeAlias = dict[str, Any]

GAP_DAYS: Final = 30
_PURGES: Final = 5  # the table has all
_COUNTED_TO: Final = 10_000
WATCH_COLUMNS = (
    Column("name", "Watch", lambda watch: watch.name),
    Column("position_at", "Position", lambda watch: watch.position_at),
    Column("resource_version", "Version", lambda watch: watch.resource_version),
    Column("lag_seconds", "Lag", lambda watch: watch.lag_seconds),
    Column("epoch", "Epoch", lambda watch: watch.epoch),
    Column("holder", "Holder", lambda watch: watch.holder),
    Column("listed_at", "Listed", lambda watch: watch.listed_at),
    Column("selection", "Records", lambda watch: watch.selection),
    Column("cluster_uid", "Cluster", lambda watch: watch.cluster_uid),
)


@dataclass(frozen=True, slots=True)
class WatchRow:
    """A watch, and whether its position is older than a watch at work lets it become."""

    watch: WatchCheckpoint
    is_stale: bool
    gaps: int


@require_safe
@signed_in
@takes("format")
def system(request: HttpRequest) -> HttpResponseBase:
    """Show the page, its fragment, or the twins of the watches. Raises PermissionDenied."""
    require_admin(request.user)
    now = timezone.now()
    watches = list(WatchCheckpoint.objects.order_by("name"))
    try:
        if kind := known_format(request.GET.get("format", "")):
            return export(kind, WATCH_COLUMNS, watches, "watches")
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    context = {
        "components": steady(read_components(now)),
        "watches": _watch_rows(watches, now),
        "monitor": MonitorRound.objects.order_by("-ended_at").first(),
        **_faults(),
        **_lifetimes(),
        **_rollups(),
        **_purges(),
    }
    return live_page(
        request, ("system.html", "_system.html"), context, now, now=now, gap_days=GAP_DAYS
    )


def _watch_rows(watches: list[WatchCheckpoint], now: datetime) -> list[WatchRow]:
    since = now - timedelta(days=GAP_DAYS)
    found = WatchGap.objects.filter(ended_at__gte=since).values_list("watch")
    gaps = dict(found.annotate(Count("id")).values_list("watch", "id__count"))
    return [
        WatchRow(watch, _is_stale(watch.position_at, now), gaps.get(watch.name, 0))
        for watch in watches
    ]


def _is_stale(at: datetime | None, now: datetime) -> bool:
    return at is None or (now - at).total_seconds() > STALE_SECONDS


def _faults() -> Shown:
    kinds = RecordFault.objects.values("watch", "code").order_by("watch", "code")
    return {
        "faults": list(kinds.annotate(names=Count("id"), times=Sum("count"), last=Max("last_at")))
    }


def _lifetimes() -> Shown:
    """Return the numbers of records that need review, each counted as far as a page needs it."""

    def count(**where: Any) -> int:
        return PodLifetime.objects.filter(**where)[:_COUNTED_TO].count()

    return {
        "open_pods": count(finished_at=None, scheduled_at__isnull=False),
        "waiting_pods": count(finished_at=None, scheduled_at=None),
        "unproved_pods": count(stamp__isnull=False),
    }


def _rollups() -> Shown:
    return {"rollup": RollupState.objects.first(), "dirt": RollupDirt.objects.count()}


def _purges() -> Shown:
    """The last purges, and how many rows of which kind each deleted."""
    last = PurgeState.objects.order_by("-id")[:_PURGES]
    return {"purges": [(purge, sorted(purge.counts.items())) for purge in last]}
