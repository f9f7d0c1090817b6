"""Each kind of write, there and back, marks what it makes wrong of utilization: one table.

Told states, holdings and pods lie so that each write changes sums that no other mark covers.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from ipuhub.models import WatchCheckpoint, WatchGap
from ipuhub.recording.store import connection_arguments
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.plainutilization import plain_utilization
from usage.models import PodLifetime, UtilizationDirt, UtilizationState
from usage.sums.engine import RefreshBusy
from usage.utilization.rollups import rebuild, refresh
from usage.utilization.selectors import read_capacity

pytestmark = pytest.mark.django_db
FIRST, NOW = at("2026-11-10T00:00"), at("2026-11-11T00:00")
HOURS = [FIRST + timedelta(hours=n) for n in range(25)]


def clock(text: str) -> Any:
    return at(f"2026-11-10T{text}")


@pytest.fixture(autouse=True)
def _day(db: None) -> None:
    """v1 told in the middle of the holding that 16 are in use: 12 of them are others' until it
    tells more, hours after the holding's end. v2 tells in between."""
    for name, when, free in (
        ("v1", "00:30", 32),
        ("v2", "00:40", 16),
        ("v1", "06:30", 16),
        ("v2", "10:30", 24),
        ("v1", "18:30", 20),
    ):
        CapacityChange.objects.create(controller=name, at=clock(when), total=32, free=free)
    job: dict[str, Any] = {"job_uid": "j", "partition": "p0", "controller": "v1"}
    store_partition("2026-11-10T05:30", "2026-11-10T09:30", **job)
    store_pod("2026-11-10T06:10", "2026-11-10T08:20", ipus=4, job_uid="j", partition="p0")
    WatchGap.objects.create(
        watch="capacity", began_at=clock("19:45"), ended_at=clock("21:15"), cause=""
    )
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)


def _agree() -> None:
    assert read_capacity(HOURS[:-1], NOW).steps == plain_utilization(HOURS)


_WRITES: dict[Any, list[dict[str, Any]]] = {
    PartitionLifetime: [
        {"reserved_at": clock("03:30")},
        {"reserved_at": clock("07:30")},  # after v1 told
        {"released_at": clock("06:15")},  # before it told
        {"reserved_at": clock("06:30")},  # as it told
        {"released_at": clock("06:30")},
        {"released_at": clock("13:30")},
        {"released_at": None},
        {"controller": "v2"},
        {"size": 1},
        {"namespace": "team-b"},
        {"job_uid": "k"},
        {"partition": "p1"},
    ],
    PodLifetime: [
        {"scheduled_at": clock("07:40")},
        {"scheduled_at": None},
        {"finished_at": clock("09:20")},
        {"finished_at": None},
        {"micro_ipus": 10**6},
        {"namespace": "team-b"},
        {"job_uid": "k"},
        {"partition": "p1"},
    ],
    CapacityChange: [
        {"at": clock("04:20")},
        {"at": clock("12:50")},
        {"controller": "v3"},
        {"total": 64},
        {"free": 8},
        {"cordoned": 4},
        {"faulty": 4},
        {"reachable": False},
    ],
    WatchGap: [
        {"began_at": clock("22:15")},  # after its end
        {"began_at": clock("15:15")},
        {"began_at": clock("20:55")},
        {"ended_at": clock("23:15")},
        {"watch": "pods"},
    ],
}


def _of(model: Any) -> Any:
    """Return the one row to write to: of the capacity changes, the one in the middle of the
    holding."""
    rows = model.objects.order_by("pk")
    return rows[2] if model is CapacityChange else rows.get()


@pytest.mark.parametrize(
    ("model", "change"),
    [(model, change) for model, changes in _WRITES.items() for change in changes],
    ids=lambda each: str(each) if isinstance(each, dict) else each.__name__,
)
def test_a_change_there_and_back_is_seen_at_once(model: Any, change: dict[str, Any]) -> None:
    row = _of(model)
    for fields in (change, {name: getattr(row, name) for name in change}):
        refresh(NOW)
        _agree()
        model.objects.filter(pk=row.pk).update(**fields)
        _agree()


@pytest.mark.parametrize("model", list(_WRITES), ids=lambda each: each.__name__)
def test_a_row_that_goes_and_comes_again_is_seen_at_once(model: Any) -> None:
    row = _of(model)
    refresh(NOW)
    model.objects.filter(pk=row.pk).delete()
    _agree()
    refresh(NOW)
    row.save(force_insert=True)
    _agree()


@pytest.mark.parametrize(
    ("ended", "model", "change", "last"),
    [
        ("09:30", PartitionLifetime, {"size": 1}, "18:00"),
        ("06:30", PartitionLifetime, {"size": 1}, "06:00"),  # v1 told it without this holding
        ("09:30", PartitionLifetime, {"released_at": clock("08:30")}, "18:00"),
        ("09:30", CapacityChange, {"free": 8}, "18:00"),
        ("09:30", WatchGap, {"ended_at": clock("20:15")}, "21:00"),
    ],
)
def test_a_change_spoils_no_hour_after_what_the_controller_tells_next(
    ended: str, model: Any, change: dict[str, Any], last: str
) -> None:
    CapacityChange.objects.create(controller="v1", at=clock("22:30"), total=32, free=32)
    PartitionLifetime.objects.update(released_at=clock(ended))
    refresh(NOW)
    assert not UtilizationDirt.objects.exists()
    model.objects.filter(pk=_of(model).pk).update(**change)
    marked = UtilizationDirt.objects.order_by("-last_hour").values_list("last_hour", flat=True)
    assert marked[0] == clock(last)


def test_what_lies_before_the_first_quarter_summed_is_summed_too() -> None:
    refresh(NOW)
    store_partition("2026-11-09T05:40", "2026-11-09T09:30", controller="v1")
    refresh(NOW)
    assert UtilizationState.objects.get().begin == at("2026-11-09T05:30")


def test_beside_another_refresh_nothing_is_summed_and_a_rebuild_says_so(database_url: str) -> None:
    with psycopg.connect(**connection_arguments(connection.settings_dict)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x7574696C])
        assert refresh(NOW) == 0
        with pytest.raises(RefreshBusy, match="computing the utilization totals. Try again"):
            rebuild(NOW, lambda *_: None)
        assert not UtilizationState.objects.exists()
    assert refresh(NOW) > 0
