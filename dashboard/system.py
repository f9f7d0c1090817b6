"""glue: the system page for administrators: components that are down, progress of recording and
sums; the latter also in the API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.db import connection
from django.db.models import Count, Max, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from dashboard.components import KINDS, UP, steady
from dashboard.health import read_components, read_stored
from dashboard.notify.outages import KEPT
from dashboard.observing import observed, read_now
from ipuhub.api.auth import IsAdmin, IsSignedIn
from ipuhub.api.views import LiveView
from ipuhub.models import RecordFault, WatchCheckpoint, WatchGap
from ipuhub.web.access import require_admin, signed_in
from ipuhub.web.columns import Column
from ipuhub.web.exports import export, known_format
from ipuhub.web.filters import BadFilter
from ipuhub.web.pollcache import for_seconds, known_unchanged, note_basis, rows_now
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.readings import STALE_SECONDS
from ipuhub.web.requests import live_page, note_as_of, wants_fragment
from usage.models import MonitorRound, PodLifetime, PurgeState, RollupDirt, RollupState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from typing import TypeAlias

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.response import Response

    from dashboard.components import Component

    Shown: TypeAlias = dict[str, Any]

GAP_DAYS: Final = 30
_PURGES: Final = 5  # the table has all
_MOST: Final = 8  # of one kind on the page: of a large fleet 60 that are up hid the others
_COUNTED_TO: Final = 10_000
_PODS: Final = PodLifetime._meta.db_table  # noqa: SLF001  # Django's
_NUMBERS: Final = f"""
    SELECT
        (SELECT count(*) FROM (SELECT FROM {_PODS}
            WHERE finished_at IS NULL AND scheduled_at IS NOT NULL LIMIT %(most)s) AS running),
        (SELECT count(*) FROM (SELECT FROM {_PODS}
            WHERE finished_at IS NULL AND scheduled_at IS NULL LIMIT %(most)s) AS waiting),
        (SELECT count(*) FROM (SELECT FROM {_PODS}
            WHERE stamp IS NOT NULL LIMIT %(most)s) AS unproved),
        (SELECT count(*) FROM {RollupDirt._meta.db_table}),
        state.zone,
        state.until,
        state.kept_from
    FROM (SELECT) AS always LEFT JOIN {RollupState._meta.db_table} AS state ON true
"""  # noqa: S608, SLF001  # names of tables, Django's
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


@dataclass(frozen=True, slots=True)
class Folded:
    """Components of one kind that are up: `id` of the line in their place, and its `title`."""

    id: str
    title: str
    components: tuple[Component, ...]


def fold(components: Iterable[Component]) -> tuple[list[Component], list[Folded]]:
    """Return the components to show one by one, and those that are folded, in their order."""
    found = list(components)
    up: dict[str, list[Component]] = {kind: [] for kind in KINDS}
    for each in found:
        kind = next((kind for kind in KINDS if each.name.startswith(kind)), None)
        if kind is not None and each.state == UP and not each.malformed.objects:
            up[kind].append(each)
    many = {kind: alike for kind, alike in up.items() if len(alike) > _MOST}
    hidden = {each.name for alike in many.values() for each in alike}
    folded = [Folded(_id(kind), _title(kind, alike), tuple(alike)) for kind, alike in many.items()]
    return [each for each in found if each.name not in hidden], folded


def _id(kind: str) -> str:
    return KINDS[kind].replace(" ", "-").lower()


def _title(kind: str, alike: Sequence[Component]) -> str:
    agents = sum(len(each.members) for each in alike)
    if agents:
        return f"{agents:,} {KINDS[kind]}s of {len(alike)} controllers are up"
    return f"{len(alike)} {KINDS[kind]}s are up"


@require_safe
@signed_in
@takes("format")
def system(request: HttpRequest) -> HttpResponseBase:
    """Show the page, its fragment, or the twins of the watches. Raises PermissionDenied."""
    require_admin(request.user)
    now = timezone.now()
    try:
        if kind := known_format(request.GET.get("format", "")):
            return export(kind, WATCH_COLUMNS, _watches(now), "watches")
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    if wants_fragment(request) and (rows := rows_now()) is not None:
        basis = for_seconds(now, rows, tuple(steady(observed(read_now(now), now))))
        note_as_of(request, now)
        note_basis(request, basis)
        if same := known_unchanged(request, basis):
            return same
    watches = _watches(now)
    stored = read_stored(now, watches)
    components, folded = fold(steady(read_components(now, stored)))
    context = {
        "components": components,
        "folded": folded,
        "monitor": stored.round,
        **_records(watches, now),
    }
    return live_page(
        request,
        ("system.html", "_system.html"),
        context,
        now,
        now=now,
        gap_days=GAP_DAYS,
        outage_days=KEPT.days,
    )


def _records(watches: list[WatchCheckpoint], now: datetime) -> Shown:
    """Return how far recording and sums have come, and what needs review."""
    return {
        "watches": [WatchRow(each, _is_stale(each.position_at, now)) for each in watches],
        **_faults(),
        **_numbers(),
        **_purges(),
    }


def _watches(now: datetime) -> list[WatchCheckpoint]:
    """Return the watches, each with its number of `gaps` in the last 30 days."""
    recent = WatchGap.objects.filter(watch=OuterRef("name"))
    recent = recent.filter(ended_at__gte=now - timedelta(days=GAP_DAYS))
    number = recent.order_by().values("watch").annotate(number=Count("id")).values("number")
    gaps = Coalesce(Subquery(number), 0)
    return list(WatchCheckpoint.objects.annotate(gaps=gaps).order_by("name"))


def _is_stale(at: datetime | None, now: datetime) -> bool:
    return at is None or (now - at).total_seconds() > STALE_SECONDS


def _faults() -> Shown:
    kinds = RecordFault.objects.values("watch", "code").order_by("watch", "code")
    return {
        "faults": list(kinds.annotate(names=Count("id"), times=Sum("count"), last=Max("last_at")))
    }


def _numbers() -> Shown:
    """Return the numbers of records that need review, each counted as far as a page needs it, and
    the progress of the daily totals."""
    with connection.cursor() as cursor:
        cursor.execute(_NUMBERS, {"most": _COUNTED_TO})
        running, waiting, unproved, dirt, zone, until, kept = cursor.fetchone()
    return {
        "open_pods": running,
        "waiting_pods": waiting,
        "unproved_pods": unproved,
        "dirt": dirt,
        "rollup": RollupState(zone=zone, until=until, kept_from=kept) if until else None,
    }


def _purges() -> Shown:
    """The last purges, and how many rows of which kind each deleted."""
    last = PurgeState.objects.order_by("-id")[:_PURGES]
    return {"purges": [(purge, sorted(purge.counts.items())) for purge in last]}


class WatchSerializer(serializers.Serializer[Any]):
    """A watch of the prober: recorded until `position_at`, which is older than a watch at work lets
    it become if it `is_stale`; `gaps`: in the last 30 days."""

    name = serializers.CharField(source="watch.name")
    position_at = serializers.DateTimeField(source="watch.position_at", allow_null=True)
    is_stale = serializers.BooleanField()
    lag_seconds = serializers.FloatField(source="watch.lag_seconds", allow_null=True)
    holder = serializers.CharField(source="watch.holder")
    epoch = serializers.IntegerField(source="watch.epoch")
    listed_at = serializers.DateTimeField(source="watch.listed_at", allow_null=True)
    selection = serializers.CharField(source="watch.selection")
    gaps = serializers.IntegerField(source="watch.gaps")


class MonitorRoundSerializer(serializers.ModelSerializer[MonitorRound]):
    """The monitor's last round: of `checked` pods, `present` exist, `closed` were ended with an
    estimated end, and `left` to the prober or a later round. `problem`: why it is incomplete."""

    class Meta:
        model = MonitorRound
        fields = ("began_at", "ended_at", "checked", "present", "closed", "left", "problem")


class FaultKindSerializer(serializers.Serializer[Any]):
    """A kind of fault in the records of a watch: `objects` have it."""

    watch = serializers.CharField()
    code = serializers.CharField()
    objects = serializers.IntegerField(source="names")
    times = serializers.IntegerField()
    last_at = serializers.DateTimeField(source="last")


class PurgeSerializer(serializers.ModelSerializer[PurgeState]):
    """A purge of what ended before a day, and how many rows of which kind it deleted."""

    counts = serializers.DictField(child=serializers.IntegerField())

    class Meta:
        model = PurgeState
        fields = ("purged_before", "zone", "began_at", "finished_at", "counts")


class SystemSerializer(serializers.Serializer[Any]):
    """Progress of recording and sums. Pods are counted to 10,000: `open_pods` run, `waiting_pods`
    have no node, and of `unproved_pods` no job is recorded. All days of `totals_zone` before
    `totals_until` are summed (null: none), and since then `changes` were recorded."""

    watches = WatchSerializer(many=True)
    monitor = MonitorRoundSerializer(allow_null=True)
    open_pods = serializers.IntegerField()
    waiting_pods = serializers.IntegerField()
    unproved_pods = serializers.IntegerField()
    totals_until = serializers.DateField(source="rollup.until", allow_null=True)
    totals_zone = serializers.CharField(source="rollup.zone", allow_null=True)
    changes = serializers.IntegerField(source="dirt")
    faults = FaultKindSerializer(many=True)
    purges = PurgeSerializer(many=True)


class SystemView(LiveView):
    """Progress of recording and sums, and what needs review; `components` has who is down."""

    permission_classes = (IsSignedIn, IsAdmin)

    @extend_schema(
        operation_id="system",
        summary="Watches, monitor, sums and faults",
        tags=["components"],
        responses=SystemSerializer,
    )
    def get(self, request: Request) -> Response:
        """The part of the page System below the components; administrators only."""
        now = timezone.now()
        watches = _watches(now)
        records = {"monitor": read_stored(now, watches).round, **_records(watches, now)}
        data = SystemSerializer(
            records | {"purges": [purge for purge, _ in records["purges"]]}
        ).data
        return self.answer(request, data, data, now)
