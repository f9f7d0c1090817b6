"""Each write marks the days and hours whose sums it makes wrong: a read right after it is correct.

Random interleavings of single writes, refreshes, rebuilds and reads: after each write the sums are
compared with the raw rows, in whole numbers, before another write could mark a range that this
write forgot.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.web.access import Scope
from partitions.models import PartitionLifetime
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rowwrites import adds_to, writes_to
from usage.models import PodLifetime
from usage.reading import read_coverage
from usage.sums.measures import Measures, dimensions
from usage.sums.queries import Question, all_sums, series_begins
from usage.sums.rollups import rebuild, refresh
from usage.sums.sql import STEP
from usage.time.windows import Window

if TYPE_CHECKING:
    from datetime import datetime

pytestmark = pytest.mark.django_db
ZONE = ZoneInfo("UTC")
FIRST, NOW = at("2026-11-10T00:00"), at("2026-11-12T09:00")
BY = ("namespace", "group", "user", "component", "instance_type")

instants = st.integers(0, 57 * 36_000 - 1).map(lambda n: FIRST + timedelta(seconds=n / 10))
ends = st.none() | instants
names = st.sampled_from(["a", "b"])
amounts = st.integers(0, 5)
common = {"namespace": names, "group": names, "user": names}
_MAKE: dict[Any, Any] = {
    PodLifetime: st.fixed_dictionaries(
        common
        | {
            "scheduled_at": st.none() | instants,
            "finished_at": ends,
            "component": names,
            "instance_type": names,
            "user_verified": st.booleans(),
            "estimated": st.booleans(),
            "cpu_millicores": amounts,
            "memory_bytes": amounts,
            "gpus": amounts,
            "micro_ipus": amounts,
        }
    ),
    PartitionLifetime: st.fixed_dictionaries(
        common | {"reserved_at": instants, "released_at": ends, "size": st.sampled_from([1, 4])}
    ),
}


rows = adds_to(_MAKE, _MAKE)
writes = writes_to(_MAKE, _MAKE)
makes = st.sampled_from([("refresh",), ("refresh",), ("rebuild",)])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(rows, min_size=2, max_size=6),
    then=st.lists(st.tuples(writes, st.none() | makes), min_size=1, max_size=6),
)
def test_what_one_write_makes_wrong_is_not_read_from_sums(
    before: list[Any], then: list[tuple[Any, Any]]
) -> None:
    for model in _MAKE:
        model.objects.all().delete()
    for write in before:
        _happen(write)
    refresh(NOW, ZONE)
    _agree()
    for write, made in then:
        _happen(write)
        _agree()
        if made is not None:
            _happen(made)
            assert read_coverage().dirt == ()
            _agree()


_BEFORE = {"scheduled_at": at("2026-11-10T06:30"), "finished_at": at("2026-11-11T06:30")}
_CHANGES: list[dict[str, Any]] = [
    {"scheduled_at": at("2026-11-10T01:30")},
    {"scheduled_at": at("2026-11-11T01:30")},
    {"scheduled_at": None},
    {"finished_at": at("2026-11-10T08:30")},
    {"finished_at": at("2026-11-12T08:30")},
    {"finished_at": None},
    {"scheduled_at": at("2026-11-12T03:30"), "finished_at": at("2026-11-12T08:30")},
    {"scheduled_at": at("2026-11-12T03:30"), "finished_at": None},
    *({name: "b"} for name in BY),
    *({name: 7} for name in ("cpu_millicores", "memory_bytes", "gpus", "micro_ipus")),
    {"estimated": True},
    {"user_verified": True},
]


@pytest.mark.parametrize("change", _CHANGES, ids=lambda row: "-".join(f"{k}={row[k]}" for k in row))
def test_a_change_of_a_pod_there_and_back_is_seen_at_once(change: dict[str, Any]) -> None:
    row = store_pod(None, user="a", **_BEFORE)
    old = {name: getattr(row, name) for name in change}
    for fields in (change, old):
        refresh(NOW, ZONE)
        PodLifetime.objects.update(**fields)
        _agree()


@pytest.mark.parametrize(
    "change",
    [
        {"reserved_at": at("2026-11-10T01:30")},
        {"reserved_at": at("2026-11-11T01:30")},
        {"released_at": at("2026-11-10T08:30")},
        {"released_at": None},
        {"size": 16},
        *({n: "b"} for n in BY[:3]),
    ],
    ids=str,
)
def test_a_change_of_a_partition_is_seen_at_once(change: dict[str, Any]) -> None:
    store_partition("2026-11-10T06:30", "2026-11-11T06:30", user="a")
    refresh(NOW, ZONE)
    PartitionLifetime.objects.update(**change)
    _agree()


@pytest.mark.parametrize("kind", ["pod", "partition"])
def test_what_comes_and_goes_is_seen_at_once(kind: str) -> None:
    refresh(NOW, ZONE)
    row = (
        store_pod(None, **_BEFORE)
        if kind == "pod"
        else store_partition("2026-11-10T06:30", "2026-11-11T06:30")
    )
    _agree()
    refresh(NOW, ZONE)
    row.delete()
    _agree()


def _agree() -> None:
    assert read_coverage().zone == ZONE.key
    question = Question(Scope(None), Window.of(FIRST, NOW, NOW), ZONE, dimensions(BY))
    begins = series_begins(question, "day")
    found = {(row.step, row.key): row.measures for row in all_sums(question, begins, STEP)}
    assert found == _plainly([*begins, NOW])


def _plainly(edges: list[datetime]) -> dict[tuple[int, tuple[str, ...]], Measures]:
    found: dict[tuple[int, tuple[str, ...]], Measures] = defaultdict(Measures)
    for step in range(len(edges) - 1):
        begin, end = edges[step : step + 2]
        for one in PodLifetime.objects.exclude(scheduled_at=None):
            assert one.scheduled_at
            seconds = _seconds(one.scheduled_at, one.finished_at, begin, end)
            if seconds is not None:
                held_then = (one.cpu_millicores, one.memory_bytes, one.gpus, one.micro_ipus)
                found[step, tuple(getattr(one, name) for name in BY)] += Measures(
                    1,
                    seconds,
                    seconds * one.estimated,
                    seconds * (not one.user_verified),
                    *(seconds * amount for amount in held_then),
                )
        for two in PartitionLifetime.objects.all():
            seconds = _seconds(two.reserved_at, two.released_at, begin, end)
            if seconds is not None:
                key = (two.namespace, two.group, two.user, "partition", f"ipu-{two.size}")
                sums = Measures(partitions=1, partition_ipu_seconds=seconds * two.size)
                found[step, key] += sums
    return dict(found)


def _seconds(began: datetime, ended: datetime | None, begin: datetime, end: datetime) -> int | None:
    """Whole seconds of it in [begin, end); None: it is not there. Whole seconds are cut first."""
    if began >= end or (began < begin and ended is not None and ended <= begin):
        return None
    start, stop = max(began, begin), min(ended or end, end)
    return max(0, int(stop.timestamp()) - int(start.timestamp()))


def _happen(event: Any) -> None:
    match event:
        case ("refresh",):
            refresh(NOW, ZONE)
        case ("rebuild",):
            rebuild(NOW, ZONE, lambda *_: None)
        case ("add", model, row):
            (store_pod if model is PodLifetime else store_partition)("2026-01-01T00:00", **row)
        case ("change", model, number, row):
            model.objects.filter(pk=_key(model, number)).update(**row)
        case ("delete", model, number):
            model.objects.filter(pk=_key(model, number)).delete()


def _key(model: Any, number: int) -> int | None:
    keys = list(model.objects.order_by("pk").values_list("pk", flat=True))
    return keys[number % len(keys)] if keys else None
