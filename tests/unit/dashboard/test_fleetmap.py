"""The fleet map from the proxy's data, for readers with and without rights."""

from __future__ import annotations

import re
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.template.loader import render_to_string

from dashboard.fleetfits import Place
from dashboard.fleetkept import visible_jobs_of
from dashboard.fleetmap import FILLS, FleetMap, Reader, draw_fleet, read_holdings
from dashboard.fleetqueue import UNKNOWN_GROUP, JobFacts
from dashboard.job.minimap import draw_minimap
from dashboard.live import LiveState
from dashboard.templatetags.fleet import (
    block_glyph,
    machine_address,
    machine_links,
    machine_name,
)
from dashboard.templatetags.fleet import squares as squares_of_machine
from ipuhub.web.palette import COLOURS, colour_number
from ipuhub.web.readings import Reading
from jobs.history.rows import size_of
from partitions.vipu.topology import PARTITION_SIZES
from tests.builders.fleetmaps import NOW, controller, draw, partition, squares, waiter

if TYPE_CHECKING:
    from datetime import datetime


@pytest.mark.parametrize("answers", [True, False])
def test_the_small_map_promises_no_block_of_a_controller_that_does_not_answer(
    answers: bool,
) -> None:
    held = controller(partition("bert", 32), reachable=answers)
    fleet = {"controllers": [held], "queue": [waiter("large", 16, blockers=["p-bert"])]}
    holdings = read_holdings([held], {}, Reader(lambda _: True, True, NOW))
    found = draw_minimap(fleet, "uid-large", holdings, FILLS[0])
    assert (found is not None) is answers
    assert draw_minimap(fleet, "uid-other", holdings, FILLS[0]) is None


def test_nothing_is_drawn_before_the_first_reading() -> None:
    assert draw_fleet({}, {}, Reader(lambda _: True, True, NOW)) == FleetMap()


def test_each_ipu_is_a_square_with_the_colour_of_its_job() -> None:
    found = draw(controller(partition("bert", 4), partition("yolo", 8)), running=("bert", "yolo"))
    css = [square.css for square in squares(found)]
    assert css[:4] == [f"fill-{colour_number('bert')}"] * 4
    assert css[4:12] == [f"fill-{colour_number('yolo')}"] * 8
    assert css[12:] == ["is-free"] * 20
    assert (found.total, dict(found.counts)) == (32, {"held": 12, "free": 20})
    assert [(key.label, key.ipus, key.note) for key in found.legend] == [
        ("yolo", 8, "anna · a"),
        ("bert", 4, "anna · a"),
    ]


def test_a_colour_belongs_to_the_name_whoever_else_is_there() -> None:
    alone = draw(controller(partition("bert", 4)), running=("bert",))
    among = draw(
        controller(*(partition(f"x{n}", 1) for n in range(9)), partition("bert", 4)),
        running=("bert", *(f"x{n}" for n in range(9))),
    )
    (first,) = alone.legend
    (again,) = [key for key in among.legend if key.label == "bert"]
    assert first.css == again.css


def test_names_with_one_colour_differ_by_a_decal() -> None:
    same = [n for n in map(str, range(99)) if colour_number(n) == colour_number("0")][:5]
    found = draw(controller(*(partition(name, 1) for name in same)), running=tuple(same))
    looks = {(key.css, key.decals) for key in found.legend}
    assert len(looks) == len(same)
    assert len({css for css, _ in looks}) == 1


def test_held_without_a_pod_is_idle_once_pods_have_had_their_time() -> None:
    soon = (NOW - timedelta(seconds=30)).isoformat()
    found = draw(
        controller(partition("idle", 4), partition("new", 2, since=soon), partition("bert", 1)),
        running=("bert",),
    )
    assert [holding.label for holding in found.idle] == [
        "a/idle, p-idle, held since 2026-11-21 11:00 UTC, no pod running"
    ]
    assert found.idle_ipus == 4
    assert [square.decals for square in squares(found)][:7] == [("hatch",)] * 4 + [()] * 3
    assert found.others == (("idle", 4), ("free", 25))


def test_a_partition_in_error_is_crossed() -> None:
    found = draw(controller(partition("bert", 1, state="ERROR")), running=("bert",))
    assert squares(found)[0].decals == ("crossed",)
    assert found.counts["faulty"] == 1
    assert draw(controller(partition("bert", 1, state="ERROR"))).counts["faulty"] == 1


def test_a_partition_that_is_being_removed_says_so_whoever_had_it() -> None:
    by_hand = {"id": "p-mine", "size": 2, "state": "REMOVING", "job": None}
    found = draw(controller(partition("bert", 1, state="REMOVING"), by_hand))
    assert found.others == (("removing", 3), ("free", 29))
    assert found.idle == ()
    first, second = squares(found)[:2]
    assert first.label == "a/bert, p-bert, held since 2026-11-21 11:00 UTC, being removed"
    assert second.label == "partition p-mine, made by hand, being removed"
    assert first.decals == ("fading",)
    by_state = draw(controller(partition("bert", 1, state="REMOVING")), fill="state")
    assert squares(by_state)[0].css == "is-removing"


def test_who_may_not_see_a_job_learns_nothing_of_it_but_that_it_holds_ipus() -> None:
    queue = (
        waiter("secret-waiter", 4, blockers=["p-mine", "p-secret"]),
        waiter("mine-too", 4),
    )
    mine, secret = partition("mine", 4), partition("secret", 8, namespace="b")
    by_hand = {"id": "p-by-secret", "size": 1, "state": "ACTIVE", "job": None}
    found = draw(controller(mine, secret, by_hand), queue=queue, running=("mine",), sees="a")
    assert "secret" not in repr(found)
    assert squares(found)[4].css == "is-other"
    assert [key.label for key in found.legend] == ["mine", "held by others"]
    assert found.queue[0].job is None
    assert found.queue[0].blockers == (("mine", "uid-mine"),)


@pytest.mark.parametrize(
    ("fill", "label", "css"),
    [("user", "anna", ""), ("group", "ml", ""), ("state", "held", "is-held")],
)
def test_squares_get_their_colour_by_what_is_asked(fill: str, label: str, css: str) -> None:
    found = draw(
        controller(partition("bert", 4), partition("yolo", 8)),
        running=("bert", "yolo"),
        fill=fill,
    )
    assert squares(found)[0].css == (css or f"fill-{colour_number(label)}")
    assert [key.label for key in found.legend] == [label]
    assert sum(key.ipus for key in found.legend) == 12


def test_a_job_that_nobody_recorded_has_no_group_and_the_map_says_so() -> None:
    found = draw(
        controller(partition("bert", 4), partition("new", 2)), running=("bert",), fill="group"
    )
    assert [(key.label, key.ipus) for key in found.legend] == [("ml", 4), (UNKNOWN_GROUP, 2)]
    assert [(s.css, s.decals) for s in squares(found)[4:6]] == [
        ("is-other", ("decal-1", "hatch"))
    ] * 2


def test_squares_of_one_partition_side_by_side_are_joined_by_an_outline() -> None:
    found = draw(controller(partition("bert", 2), partition("one", 1), partition("yolo", 5)))
    first, second, third = found.blocks[0].machines[:3]
    assert [(each.x, each.width) for each in first.joints] == [(0, 22)]  # two of ten, two apart
    assert [(each.x, each.width) for each in second.joints] == [(0, 46)]
    assert third.joints == ()
    assert squares_of_machine(first).count('class="joint"') == 1


def test_what_the_controller_says_of_an_ipu_is_on_its_square() -> None:
    machines = controller(partition("bert", 4))
    first, second = machines["machines"][0]["ipus"], machines["machines"][1]["ipus"]
    first[0]["cordon"] = second[0]["cordon"] = second[1]["cordon"] = "ag1 is cordoned: cables"
    second[1]["fault"] = "ag1: IPU 1 is hot"
    found = draw(machines, running=("bert",))
    assert squares(found)[0].label.endswith("; ag1 is cordoned: cables")
    cordoned, broken = squares(found)[4:6]
    assert (cordoned.css, cordoned.label) == ("is-cordoned", "free, but ag1 is cordoned: cables")
    assert cordoned.decals == ("striped",)
    assert (broken.css, broken.label, broken.decals) == (
        "is-faulty",
        "ag1: IPU 1 is hot",
        ("crossed",),
    )
    assert (found.counts["cordoned"], found.counts["faulty"], found.counts["held"]) == (1, 1, 4)


def test_a_held_ipu_with_a_fault_is_crossed() -> None:
    machines = controller(partition("bert", 2), partition("lazy", 2))
    for number in (0, 2):
        machines["machines"][0]["ipus"][number]["fault"] = "ag0: an IPU is hot"
    found = squares(draw(machines, running=("bert",)))
    assert ["crossed" in square.decals for square in found[:4]] == [True, False, True, False]
    assert "hatch" in found[2].decals


def test_what_is_idle_for_longest_is_named_first() -> None:
    since = {"new": 5, "old": 90, "mid": 30}
    parts = [
        partition(name, 1, since=(NOW - timedelta(minutes=minutes)).isoformat())
        for name, minutes in since.items()
    ]
    found = draw(controller(*parts))
    assert [each.job.name for each in found.idle if each.job] == ["old", "mid", "new"]
    figures = render_to_string("overview/_figures.html", {"map": found, "now": NOW})
    assert "old and 2 more, the first for <time" in figures


@pytest.mark.parametrize(
    ("workers", "of", "want"),
    [(4, 4, "4 workers running"), (3, 4, "3 of 4 workers running"), (1, 0, "1 worker running")],
)
def test_a_square_says_whose_it_is_since_when_and_how_many_workers_run(
    workers: int, of: int, want: str
) -> None:
    job = JobFacts("uid-bert", "a", "bert", "anna", runs=True, workers=workers, all_workers=of)
    fleet = {"controllers": [controller(partition("bert", 4))]}
    reader = Reader(lambda _: True, True, NOW, groups={"uid-bert": "vision"})
    assert squares(draw_fleet(fleet, {"uid-bert": job}, reader))[0].label == (
        f"a/bert, p-bert, anna, group vision, held since 2026-11-21 11:00 UTC, {want}"
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, 1),
        ({"jobInstances": 3, "workersPerJobInstance": "2", "ipusPerJobInstance": 4}, 6),
        ({"modelReplicas": 4, "ipusPerModelReplica": 2, "workers": {"replicas": 2}}, 2),
        ({"workers": {"replicas": 3}, "jobInstances": 2}, 6),
        ({"workers": "none", "jobInstances": 2}, 2),
        ({"workers": {"replicas": -1}}, 0),
    ],
)
def test_the_map_counts_the_workers_of_a_job_as_the_record_does(
    spec: dict[str, Any], want: int
) -> None:
    job = {
        "metadata": {"uid": "u", "namespace": "a", "name": "bert"},
        "spec": spec,
        "status": {"workersStatus": {"active": 1}},
    }
    everything: Any = SimpleNamespace(covers=lambda _: True)
    (facts,) = visible_jobs_of(LiveState(Reading([job])), everything, NOW).values()
    assert facts.all_workers == size_of(spec).workers == want


def test_free_ipus_that_no_job_can_get_are_told_apart() -> None:
    cordoned = draw(controller(hasNode=False))
    assert cordoned.counts == {"cordoned": 32}
    other = controller()
    other["machines"][0]["ipus"][0]["outside"] = True
    assert draw(other).counts == {"outside": 1, "free": 31}


def test_the_machines_that_the_next_waiter_would_get_are_marked() -> None:
    queue = (waiter("never", 64, never="x", block=None), waiter("large", 16))
    found = draw(controller(partition("bert", 4)), queue=queue, running=("bert", "large"))
    marked = [m.name for block in found.blocks for m in block.machines if m.is_target]
    assert marked == ["ag4", "ag5", "ag6", "ag7"]
    assert found.next == "large"


def test_machines_of_a_silent_controller_are_drawn_as_old_and_the_others_are_not() -> None:
    silent = controller(address="v2:8090", message="v2:8090 does not answer", ageSeconds=150)
    found = draw(controller(), silent)
    assert {block.controller: block.is_stale for block in found.blocks} == {
        "v1:8090": False,
        "v2:8090": True,
    }
    (controller_state,) = found.silent
    assert controller_state.message == "v2:8090 does not answer"
    assert controller_state.read_at == (NOW - timedelta(seconds=150)).replace(
        second=0, microsecond=0
    )


def test_the_address_of_a_machine_is_escaped_once_wherever_it_stands() -> None:
    odd = controller(machines=1)
    odd["machines"][0]["agent"] = "a&b"
    (machine,) = draw(odd).blocks[0].machines
    assert machine_address("v1:8090", "a&b") == "/fleet/machines/v1:8090/a&b/"
    for html in (machine_name(machine, "fleet"), squares_of_machine(machine)):
        assert 'href="/fleet/machines/v1:8090/a&amp;b/"' in html
    links = machine_links(Place("v1:8090", 1, ("a&b",)))
    assert links == '<a href="/fleet/machines/v1:8090/a&amp;b/">a&amp;b</a>'


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        ({}, {}, NOW + timedelta(minutes=30)),
        ({"activeDeadlineSeconds": None}, {}, None),
        ({}, {"startTime": None}, None),
        ({"keepPartition": True}, {}, None),  # it stays until somebody deletes the job
        ({}, {"completionTime": "2026-11-21T11:40:00Z"}, None),
        ({"activeDeadlineSeconds": 1800}, {}, None),  # over, and nothing has happened
    ],
)
def test_a_job_frees_its_ipus_by_its_limit_only_where_that_is_to_come_and_frees_them(
    spec: dict[str, Any], status: dict[str, Any], want: datetime | None
) -> None:
    job = {
        "metadata": {"uid": "u", "namespace": "a", "name": "bert"},
        "spec": {"activeDeadlineSeconds": 3600, **spec},
        "status": {"startTime": "2026-11-21T11:30:00Z", **status},
    }
    everything: Any = SimpleNamespace(covers=lambda _: True)
    (facts,) = visible_jobs_of(LiveState(Reading([job])), everything, NOW).values()
    assert facts.ends_by == want


def test_colours_are_within_the_palette() -> None:
    assert {colour_number(str(name)) for name in range(200)} == set(range(COLOURS))


def test_an_odd_name_stays_text_on_the_map() -> None:
    odd = '<script>alert(1)</script>"'
    held = partition(odd, 4)
    held["job"]["uid"] = "uid"
    found = draw(controller(held))
    drawn = squares_of_machine(found.blocks[0].machines[0])
    assert "<script" not in drawn
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;" in drawn


def test_only_the_machines_of_that_block_are_marked() -> None:
    other = controller(address="v2:8090", machines=16)
    found = draw(controller(machines=32), other, queue=(waiter("large", 16),))
    marked = [
        (block.controller, block.domain, machine.name)
        for block in found.blocks
        for machine in block.machines
        if machine.is_target
    ]
    assert marked == [("v1:8090", 0, f"ag{number}") for number in range(4, 8)]


def test_a_large_fleet_tells_free_ipus_from_those_that_are_not_for_jobs() -> None:
    large = controller(machines=256)
    large["machines"][0]["ipus"][0]["outside"] = True
    first = draw(large).blocks[0].machines[0]
    assert [(square.css, square.width) for square in first.squares] == [
        ("is-outside", 10),
        ("is-free", 34),
    ]


@pytest.mark.parametrize("size", PARTITION_SIZES)
def test_a_glyph_has_a_cell_for_each_ipu(size: int) -> None:
    found = re.search(r'<rect width="(\d+)" height="(\d+)"', block_glyph(size))
    assert found
    assert int(found[1]) * int(found[2]) == size * 3 * 3
