"""Each write marks the quarters of an hour whose sums it makes wrong: a read right after it is
correct.

Random interleavings of single writes, refreshes, rebuilds and reads: after each write the sums are
read hour by hour and compared with the raw rows, before another write could mark a range that this
write forgot.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.models import WatchCheckpoint, WatchGap
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rowwrites import adds_to, writes_to
from tests.integration.usage.plainutilization import plain_utilization
from usage.models import (
    PodLifetime,
    UtilizationDirt,
    UtilizationHour,
    UtilizationQuarter,
    UtilizationState,
)
from usage.utilization.rollups import missing, rebuild, refresh
from usage.utilization.selectors import read_capacity

if TYPE_CHECKING:
    from datetime import datetime

pytestmark = pytest.mark.django_db
FIRST, NOW = at("2026-11-10T00:00"), at("2026-11-11T00:00")
HOURS = [FIRST + timedelta(hours=n) for n in range(25)]
_TABLES = (PodLifetime, PartitionLifetime, CapacityChange, WatchGap, WatchCheckpoint)
_SUMS = (UtilizationHour, UtilizationQuarter, UtilizationState, UtilizationDirt)

instants = st.integers(0, 24 * 36_000 - 1).map(lambda n: FIRST + timedelta(seconds=n / 10))
ends = st.none() | instants
jobs = st.fixed_dictionaries(
    {
        "job_uid": st.sampled_from(["j", "k", ""]),
        "namespace": st.sampled_from(["team-a", "team-b"]),
        "partition": st.sampled_from(["p0", "p1"]),
    }
)
holdings = st.fixed_dictionaries(
    {
        "controller": st.sampled_from(["v1", "v2"]),
        "size": st.sampled_from([1, 4, 16]),
        "reserved_at": instants,
        "released_at": ends,
    }
)
pods = st.fixed_dictionaries(
    {
        "scheduled_at": st.none() | instants,
        "finished_at": ends,
        "micro_ipus": st.integers(0, 4).map(lambda n: n * 10**6),
        "partition": st.sampled_from(["p0", "p1", ""]),
    }
)
states = st.fixed_dictionaries(
    {
        "controller": st.sampled_from(["v1", "v2"]),
        "at": instants,
        "total": st.sampled_from([0, 16, 32]),
        "free": st.integers(0, 16),
        "faulty": st.integers(0, 4),
        "cordoned": st.integers(0, 4),
        "reachable": st.booleans(),
    }
)
gaps = st.fixed_dictionaries(
    {
        "watch": st.sampled_from(["capacity", "capacity", "pods"]),
        "began_at": instants,
        "ended_at": instants,
    }
)
checkpoints = st.fixed_dictionaries({"position_at": st.none() | instants})
_MAKE: dict[Any, Any] = {
    PartitionLifetime: st.tuples(holdings, jobs).map(lambda two: two[1] | two[0]),
    PodLifetime: st.tuples(pods, jobs).map(lambda two: two[1] | two[0]),
    CapacityChange: states,
    WatchGap: gaps,
    WatchCheckpoint: checkpoints,
}
_KINDS = (PartitionLifetime, CapacityChange, PodLifetime, WatchGap)


rows = adds_to(_KINDS, _MAKE)
writes = writes_to(_KINDS, _MAKE) | st.tuples(st.just("asked"), checkpoints)
makes = st.sampled_from([("refresh",), ("refresh",), ("rebuild",)])


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(rows, min_size=2, max_size=6),
    checkpoint=checkpoints,
    then=st.lists(st.tuples(writes, st.none() | makes), min_size=1, max_size=6),
)
def test_what_one_write_makes_wrong_is_not_read_from_sums(
    before: list[Any], checkpoint: dict[str, Any], then: list[tuple[Any, Any]]
) -> None:
    for model in (*_TABLES, *_SUMS):
        model.objects.all().delete()
    WatchCheckpoint.objects.create(name="capacity", **checkpoint)
    for write in before:
        _happen(write)
    refresh(NOW)
    _agree()
    for write, made in then:
        _happen(write)
        _agree()
        if made is not None:
            _happen(made)
            assert missing(NOW) == []
            assert not UtilizationDirt.objects.exists()
            _agree()


def _agree() -> None:
    assert read_capacity(HOURS[:-1], NOW).steps == plain_utilization(HOURS)


def _happen(event: Any) -> None:
    match event:
        case ("refresh",):
            refresh(NOW)
        case ("rebuild",):
            rebuild(NOW, lambda *_: None)
        case ("asked", row):
            WatchCheckpoint.objects.update(**row)
        case ("add", model, row):
            _add(model, row)
        case ("change", model, number, row):
            if (pk := _key(model, number)) and not _clashes(model, pk, row):
                model.objects.filter(pk=pk).update(**row)
        case ("delete", model, number):
            model.objects.filter(pk=_key(model, number)).delete()


def _add(model: Any, row: dict[str, Any]) -> None:
    if model is PodLifetime:
        store_pod("2026-01-01T00:00", **row)
    elif model is PartitionLifetime:
        store_partition("2026-01-01T00:00", **row)
    elif model is WatchGap:
        WatchGap.objects.create(**row, cause="")
    elif not _clashes(model, None, row):
        CapacityChange.objects.create(**row)


def _key(model: Any, number: int) -> int | None:
    keys = list(model.objects.order_by("pk").values_list("pk", flat=True))
    return keys[number % len(keys)] if keys else None


def _clashes(model: Any, pk: int | None, row: dict[str, Any]) -> bool:
    """A controller tells one state at an instant."""
    if model is not CapacityChange or not {"controller", "at"} & row.keys():
        return False
    old = CapacityChange.objects.filter(pk=pk).values("controller", "at").first() or {}
    want: dict[str, datetime | str] = old | {k: row[k] for k in ("controller", "at") if k in row}
    return CapacityChange.objects.exclude(pk=pk).filter(**want).exists()
