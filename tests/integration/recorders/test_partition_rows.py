"""Rows of partition lifetimes when changes arrive late, twice or from an old list."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from ipuhub.partition import Phase
from ipuhub.recording.recorder import VanishedObjects
from partitions.history.places import places_of, store_places, unplaced
from partitions.history.recorder import (
    Owner,
    ShardRow,
    close_lost_shards,
    note_capacity_seen,
    recorded_of,
    store_shards,
)
from partitions.models import PartitionLifetime
from tests.builders.trackerentries import NOW, entry

if TYPE_CHECKING:
    from datetime import datetime

    from partitions.proxy.lifecycle import TrackerEntry

pytestmark = pytest.mark.django_db
CLUSTER = "cluster-1"
ADA = Owner("physics", "ada", user_verified=True)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def cursor() -> Any:
    connection.ensure_connection()
    return connection.connection.cursor()


def write(
    *entries: TrackerEntry, when: float = 1, owner: Owner | None = None, **given: Any
) -> None:
    row = ShardRow("shard-1", "ipuhub-system", "tracker", entries)
    owners = {one.uid: owner for one in entries} if owner else {}
    facts: dict[str, Any] = {"cluster_uid": CLUSTER, "since": None} | given
    with cursor() as used:
        store_shards(used, [row], owners, now=at(when), **facts)


def row() -> PartitionLifetime:
    return PartitionLifetime.objects.get()


def released(one: TrackerEntry, seconds: float) -> TrackerEntry:
    return replace(one, phase=Phase.RELEASED, released_at=at(seconds))


def test_a_release_is_final_whatever_an_older_list_says() -> None:
    write(released(entry(active_at=at(2)), 9), when=10)
    write(entry(active_at=at(2), attempt=1), when=11)
    assert (row().phase, row().released_at, row().attempt) == ("released", at(9), 0)


def test_what_is_lost_is_held_until_then() -> None:
    lost = entry(phase=Phase.ERROR, reason="PartitionLost", lost_at=at(5), active_at=at(2))
    write(lost, when=6)
    assert (row().phase, row().released_at, row().estimated) == ("error", at(5), True)
    with cursor() as used:
        assert recorded_of(used, [lost.key]) == []
    write(replace(lost, phase=Phase.RELEASED, released_at=at(5)), when=9)
    assert (row().phase, row().released_at, row().estimated) == ("released", at(5), False)


def test_the_first_activation_stays() -> None:
    write(entry(active_at=at(2)), when=3)
    write(entry(active_at=None, phase=Phase.RESERVING, attempt=1), when=4)
    assert (row().phase, row().active_at) == ("reserving", at(2))


FLEET: dict[str, Any] = {
    "controllers": [
        {
            "address": "v1:8090",
            "reachable": True,
            "placesKnown": True,
            "machines": [
                {
                    "agent": f"ag{number}",
                    "ipus": [
                        {"position": 4 * number + at, "partition": holder}
                        for at, holder in enumerate(holders)
                    ],
                }
                for number, holders in enumerate(
                    [["other", "other", "p-1", "p-1"], ["p-1", "p-1", None, None]]
                )
            ],
        }
    ]
}


def place(fleet: dict[str, Any] = FLEET) -> int:
    with cursor() as used:
        return store_places(used, unplaced(used), places_of(fleet)[1])


def test_where_a_partition_stands_is_recorded_once_and_stays_after_its_release() -> None:
    active = entry(id="p-1", controller="v1:8090", size=4, active_at=at(2))
    write(active)
    assert place() == 1
    assert row().machines == {"ag0": [2, 3], "ag1": [4, 5]}
    assert place() == 0
    write(released(active, 9), when=10)
    assert row().machines == {"ag0": [2, 3], "ag1": [4, 5]}


def test_another_attempt_may_stand_elsewhere() -> None:
    active = entry(id="p-1", controller="v1:8090", size=4, active_at=at(2))
    write(active)
    place()
    write(replace(active, attempt=1), when=3)
    assert row().machines == {}
    assert place() == 1


def test_a_place_that_was_read_before_another_attempt_is_not_recorded() -> None:
    active = entry(id="p-1", controller="v1:8090", size=4, active_at=at(2))
    write(active)
    with cursor() as used:
        read = unplaced(used)
    write(replace(active, attempt=1), when=3)  # made anew with the same id
    with cursor() as used:
        store_places(used, read, places_of(FLEET)[1])
    assert row().machines == {}


@pytest.mark.parametrize("fault", [{"reachable": False}, {"placesKnown": False}])
def test_a_place_that_nobody_knows_now_is_not_recorded(fault: dict[str, bool]) -> None:
    write(entry(id="p-1", controller="v1:8090", size=4, active_at=at(2)))
    assert place({"controllers": [FLEET["controllers"][0] | fault]}) == 0
    assert row().machines == {}


def test_group_and_user_once_known_stay_with_who_verified_them() -> None:
    write(entry(), owner=ADA)
    write(entry(attempt=1), when=2)
    assert (row().attempt, row().group, row().user) == (1, "physics", "ada")
    assert row().user_verified


def test_an_end_that_was_concluded_is_never_before_the_beginning() -> None:
    write(entry(active_at=at(30)), when=31)
    write(when=20)  # a clock that was set back
    assert row().released_at == at(30)
    assert row().estimated


def test_the_uncertainty_counts_from_the_last_time_it_was_there() -> None:
    write(entry(), when=1)
    write(when=100, since=at(90))
    assert (row().released_at, row().uncertainty_seconds) == (at(100), 10)


def test_rows_of_another_cluster_are_left_alone() -> None:
    write(entry())
    write(when=5, cluster_uid="cluster-2")
    with cursor() as used:
        lost = close_lost_shards(used, VanishedObjects((), "cluster-2", at(4), at(5)))
    assert (lost, row().released_at) == (0, None)


def test_only_what_is_stored_with_the_trackers_own_times_is_acknowledged() -> None:
    held, gone = entry(1), released(entry(2), 5)
    write(held, gone, entry(3), when=6)
    write(held, gone, when=7)  # the third vanished: its end is a guess
    with cursor() as used:
        keys = [held.key, gone.key, entry(3).key]
        assert recorded_of(used, keys) == [gone.key]


def test_the_time_up_to_which_controllers_were_asked_never_goes_back() -> None:
    for seconds, known in ((100, 100), (50, 100), (120, 120)):
        with cursor() as used:
            note_capacity_seen(used, at(seconds), 300)
            used.execute("SELECT position_at FROM ipuhub_watchcheckpoint WHERE name = 'capacity'")
            assert used.fetchone()[0] == at(known)
