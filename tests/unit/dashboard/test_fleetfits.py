"""The sizes that fit, where and when, and the fragmentation of free IPUs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.template.loader import render_to_string

from dashboard.fleetfits import Fragments, fragments_of, size_fits
from dashboard.fleetmap import FleetMap
from dashboard.fleetqueue import Holding, JobFacts

if TYPE_CHECKING:
    from dashboard.fleetfits import SizeFit

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def controller(*blocks: tuple[int, int], **given: Any) -> dict[str, Any]:
    return {
        "address": "v1",
        "hasNode": True,
        "reachable": True,
        "placesKnown": True,
        "largestBlock": 64,
        "freeBlocks": [{"size": size, "count": count} for size, count in blocks],
        "machines": [
            {
                "agent": f"ag{number}",
                "cluster": "c",
                "domain": 0,
                "ipus": [{"position": 4 * number + at, "partition": None} for at in range(4)],
            }
            for number in range(16)
        ],
        **given,
    }


def fit(size: int, count: int = 0, **given: Any) -> dict[str, Any]:
    place = {"controller": "v1", "count": count, "cluster": "c", "domain": 0, "start": 8}
    places = [place | {"size": size}] if count else []
    return {"size": size, "count": count, "places": places, **given}


@pytest.mark.parametrize(
    ("blocks", "fits", "want"),
    [
        (((8, 5),), (fit(8, 5),), Fragments("v1", 40, 8, 32, ((8, 5),))),
        (((64, 1),), (fit(64, 1),), Fragments("v1", 64, 64, 64, ((64, 1),))),
        ((), (), Fragments("v1", 0, 0, 0, ())),
        # Room that a controller has refused is no block that a job gets.
        (((8, 1), (4, 1)), (fit(4, 3),), Fragments("v1", 12, 4, 8, ((8, 1), (4, 1)))),
    ],
)
def test_free_ipus_apart(blocks: Any, fits: Any, want: Fragments) -> None:
    assert fragments_of({"controllers": [controller(*blocks)], "fits": fits}) == (want,)


@pytest.mark.parametrize(
    ("largest", "possible", "want"), [(8, 32, 75), (16, 16, 0), (0, 0, 0), (0, 4, 100)]
)
def test_fragmentation_in_per_cent(largest: int, possible: int, want: int) -> None:
    assert Fragments("v1", 40, largest, possible, ()).percent == want


def test_a_controller_that_no_node_reaches_or_that_is_silent_has_no_free_blocks_to_show() -> None:
    away = controller(machines=[], freeBlocks=[], reachable=False)
    silent = controller((8, 1), reachable=False)
    nodeless = controller((8, 1), hasNode=False)
    assert fragments_of({"controllers": [nodeless, away, silent]}) == ()


def holding(name: str, ends_by: datetime | None) -> Holding:
    job = JobFacts(f"uid-{name}", "a", name, "", runs=True, ends_by=ends_by)
    return Holding(f"p-{name}", 4, "held", job, None, "")


BLOCK = {"controller": "v1", "cluster": "c", "domain": 0, "start": 0, "size": 32}


def later(*blockers: str) -> dict[str, Any]:
    return fit(32, inTheWay=8, block=BLOCK, blockers=[f"p-{name}" for name in blockers])


def read(row: dict[str, Any], *holdings: Holding) -> SizeFit:
    fleet = {"controllers": [controller()], "fits": [row]}
    found = size_fits(fleet, {("v1", each.id): each for each in holdings})
    return next(each for each in found if each.size == row["size"])


def test_a_size_that_fits_names_the_machines_of_the_next_one() -> None:
    found = read(fit(8, 3))
    assert (found.kind, found.count, found.places[0].machines) == ("now", 3, ("ag2", "ag3"))


def test_a_size_that_does_not_says_what_has_to_end_and_when() -> None:
    soon, late = NOON + timedelta(hours=1), NOON + timedelta(hours=2)
    found = read(later("bert", "yolo"), holding("bert", soon), holding("yolo", late))
    assert (found.kind, found.free_by, found.others) == ("later", late, False)
    assert found.blockers == (("bert", "uid-bert"), ("yolo", "uid-yolo"))
    assert found.places[0].machines == tuple(f"ag{n}" for n in range(8))


def test_without_a_limit_or_with_a_holder_that_one_may_not_see_nobody_knows_when() -> None:
    soon = NOON + timedelta(hours=1)
    assert read(later("bert"), holding("bert", None)).free_by is None
    found = read(later("bert", "secret"), holding("bert", soon))
    assert (found.free_by, found.others) == (None, True)


def test_sizes_beyond_the_largest_block_never_fit_and_shut_ones_name_no_block() -> None:
    rows = [fit(1, 4), fit(2, inTheWay=None, block=None, blockers=[])]
    found = size_fits({"controllers": [controller()], "fits": rows}, {})
    assert [each.kind for each in found] == ["now", "shut", *["never"] * 5]
    assert size_fits({"controllers": []}, {}) == ()


def test_what_a_silent_controller_said_last_is_no_room_and_what_it_has_is_not_known() -> None:
    here, there = controller(), controller(address="v2", reachable=False)
    block = BLOCK | {"controller": "v2"}
    rows = [
        fit(1, 4),  # on v1
        {"size": 2, "count": 3, "places": [{"controller": "v2", "count": 3}]},
        {
            "size": 4,
            "count": 5,
            "places": [{"controller": "v1", "count": 2}, {"controller": "v2", "count": 3}],
        },
        fit(8, inTheWay=8, block=block, blockers=[]),
        fit(16, inTheWay=None, block=None, blockers=[]),
        later(),
    ]
    found = size_fits({"controllers": [here, there], "fits": rows}, {})
    kinds = [(each.kind, each.count, [place.controller for place in each.places]) for each in found]
    unknown = ("unknown", 0, [])
    assert kinds == [
        ("now", 4, ["v1"]),
        unknown,
        ("now", 2, ["v1"]),
        unknown,
        unknown,
        ("later", 0, ["v1"]),
        unknown,  # 64: no controller that answers has such a block
    ]


def test_of_many_controllers_those_with_scattered_free_ipus_come_first() -> None:
    whole = [Fragments(f"v{number}:8090", 64, 64, 64, ((64, 1),)) for number in range(9)]
    little = Fragments("little:8090", 64, 32, 64, ((32, 2),))
    much = Fragments("much:8090", 64, 4, 64, ((4, 16),))
    found = FleetMap(fragments=(*whole, little, much))
    assert found.fragmented == (much, little)
    text = " ".join(render_to_string("fleet/_fragments.html", {"map": found}).split())
    assert "9 controllers with free IPUs are not fragmented" in text
    assert "<li>v8:8090: 1 block of 64&nbsp;IPUs</li>" in text
    assert ">16 blocks of 4&nbsp;IPUs</p>" in text
    assert 'aria-label="Free: 2 blocks of 32 IPUs"' in text
    few = FleetMap(fragments=(whole[0], much))
    assert (few.fragmented, few.in_one_piece) == ((much, whole[0]), ())
