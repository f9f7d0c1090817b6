"""The map of a large fleet: machines without names, racks by controller, and a legend cut short."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from django.template.loader import render_to_string

from dashboard.fleetfits import Place, SizeFit
from dashboard.fleetmap import FILLS
from dashboard.templatetags.fleet import machine_name
from tests.builders.fleetmaps import NOW, controller, draw, partition, waiter

if TYPE_CHECKING:
    from dashboard.fleetmap import FleetMap


def test_a_large_fleet_draws_neighbours_of_one_holder_as_one() -> None:
    found = draw(controller(partition("bert", 6), machines=256), running=("bert",))
    assert found.detail == "machines"
    assert (found.total, found.counts["held"], found.counts["free"]) == (1024, 6, 1018)
    first, second = found.blocks[0].machines[:2]
    assert [square.width for square in first.squares] == [46]
    assert [square.width for square in second.squares] == [22, 22]
    assert len(found.blocks) == 16
    # No name is drawn: a list has them, for the keyboard and for who does not see the map.
    assert len(found.names) == 256
    context = {"map": found, "fills": FILLS, "fill": "job", "now": NOW}
    page, overview = (
        render_to_string("fleet/_map.html", context | {"page": page})
        for page in ("fleet", "overview")
    )
    assert '<li><a href="/fleet/machines/v1:8090/ag255/">ag255</a></li>' in page
    assert "ag255</a>" not in overview


def test_beyond_1024_ipus_each_rack_is_one_bar_that_names_its_machines() -> None:
    held = partition("bert", 6)
    found = draw(controller(held, machines=272), running=("bert",), queue=(waiter("next", 16),))
    assert (found.detail, found.machines, found.total) == ("racks", 272, 1088)
    assert [len(block.machines) for block in found.blocks] == [1] * 17
    bar = found.blocks[0].machines[0]
    assert (bar.name, bar.is_target, found.blocks[0].free) == ("c", True, 58)
    assert found.blocks[1].machines[0].name == "c 1"
    assert [(square.width, square.label) for square in bar.squares] == [
        (70, "ag0 to ag1, a/bert, p-bert, anna, group ml, held since 2026-11-21 11:00 UTC"),
        (694, "ag1 to ag15, free"),
    ]


def test_numbers_of_a_large_fleet_have_their_thousands_apart() -> None:
    found = draw(controller(partition("bert", 1022), machines=1024), running=("bert",))
    legend = drawn_map(found, "overview")
    assert ("<strong>1,022</strong>" in legend, "<strong>3,074</strong>" in legend) == (True, True)
    fleet = SimpleNamespace(held=1022, free=3074, total=4096)
    figures = render_to_string("overview/_figures.html", {"fleet": fleet, "map": found} | SEES_ALL)
    assert re.search(r">1,022 <span [^>]*>of 4,096</span>", figures)
    own = render_to_string("overview/_figures.html", {"fleet": fleet, "map": found})
    assert "held, 3,074 free in the fleet" in own
    day = {"day": SimpleNamespace(areas=(1,), capacity=4096)}
    assert ">capacity 4,096<" in render_to_string("fleet/_day.html", day)
    fits = (
        SizeFit(1, 3787, "now", (Place("v1:8090", 2787, ()), Place("v2:8090", 1000, ()))),
        SizeFit(2048, 0, "shut"),
    )
    short = {"map": SimpleNamespace(fits=fits, closed=1024), "now": NOW}
    assert "<strong>3,787</strong>" in render_to_string("fleet/_fits.html", short)
    sizes = render_to_string("fleet/_sizes.html", short)
    assert [text in sizes for text in (">3,787<", "(2,787)", "(1,000)", ">2,048<")] == [True] * 4
    figures = render_to_string("overview/_figures.html", {"fleet": fleet} | short | SEES_ALL)
    assert ">1,024 out of service<" in figures


SEES_ALL = {"sees_all": True}


def drawn_map(found: FleetMap, page: str) -> str:
    context = {"map": found, "fills": FILLS, "fill": "job", "now": NOW, "page": page}
    return render_to_string("fleet/_map.html", context)


def test_racks_stand_in_a_block_of_their_controller_without_the_end_that_all_names_share() -> None:
    racks = [
        controller(address=f"pod-{number}.example.org:8090", machines=136) for number in range(2)
    ]
    text = drawn_map(draw(*racks), "overview")
    names = re.findall(r'class="rack-name" title="([^"]+)">([^<]+)<', text)
    assert names == [(f"pod-{number}.example.org:8090", f"pod-{number}") for number in range(2)]
    groups = text.split('class="rack-group"')[1:]
    assert [group.count('class="rack"') for group in groups] == [9, 9]
    assert "272 IPU-Machines · 1,088 IPUs" in text
    alone = drawn_map(draw(controller(machines=272)), "overview")
    assert "rack-group" not in alone
    assert ">c 1 <b>64</b>" in alone


def test_a_controller_is_named_once_and_its_domains_beside_their_machines() -> None:
    others = [controller(address=f"v{number}:8090", machines=32) for number in (1, 2)]
    text = drawn_map(draw(*others), "fleet")
    assert [text.count(f">v{number}:8090 · c<") for number in (1, 2)] == [1, 1]
    assert re.findall(r'class="domain-name"[^>]*>([^<]+)<', text) == ["domain 0", "domain 1"] * 2
    small = drawn_map(draw(controller(), controller(address="v2:8090")), "fleet")
    assert "domain-name" not in small


def test_a_machine_has_a_short_name_where_all_begin_alike_and_is_called_by_its_own() -> None:
    racked = controller(machines=2)
    for machine in racked["machines"]:
        machine["agent"] = f"rack1-{machine['agent']}"
    (first, _) = draw(racked).blocks[0].machines
    link = machine_name(first, "fleet")
    assert '<span class="full-name">rack1-ag0</span><span class="brief-name">ag0</span>' in link
    assert 'aria-label="rack1-ag0"' in link
    (plain, _) = draw(controller(machines=2)).blocks[0].machines
    assert machine_name(plain, "fleet").endswith(">ag0</a>")


@pytest.mark.parametrize(("page", "named", "more"), [("overview", 8, 12), ("fleet", 16, 4)])
def test_the_overview_names_the_largest_jobs_and_leads_to_the_others(
    page: str, named: int, more: int
) -> None:
    names = [f"job-{number}" for number in range(20)]
    found = draw(controller(*(partition(name, 1) for name in names)), running=tuple(names))
    text = drawn_map(found, page)
    assert len(re.findall(r'<a class="fw-medium" href="/jobs/uid-job-\d+/">', text)) == named
    assert f"and {more} more" in text
    assert (f'<a href="/fleet/">and {more} more' in text) is (page == "overview")
