"""Components of a large fleet on the page System."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from django.template.loader import render_to_string

from dashboard.components import DOWN, UNKNOWN, UP, Component
from dashboard.system import fold
from ipuhub.kube.malformed import Malformed

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def controllers(number: int) -> list[Component]:
    return [Component(f"V-IPU controller v{n}:8090", UP, "0 partitions") for n in range(number)]


def agents(number: int) -> list[Component]:
    names = tuple(f"ag{n}" for n in range(32))
    return [Component(f"V-IPU agents of v{n}:8090", UP, "", members=names) for n in range(number)]


def test_up_to_eight_of_a_kind_are_all_there() -> None:
    found = [Component("Prober", UP, "records"), *controllers(8), *agents(8)]
    assert fold(found) == (found, [])


def test_of_many_those_that_are_up_are_folded_and_the_others_stay_in_their_place() -> None:
    many = controllers(34)
    many[3], many[5] = replace(many[3], state=DOWN), replace(many[5], state=UNKNOWN)
    prober, operator = Component("Prober", UP, "records"), Component("IPU Operator", UP, "leads")
    components, folded = fold([operator, *many, *agents(32), prober])
    assert components == [operator, many[3], many[5], prober]
    assert [(each.id, each.title) for each in folded] == [
        ("v-ipu-controller", "32 V-IPU controllers are up"),
        ("v-ipu-agent", "1,024 V-IPU agents of 32 controllers are up"),
    ]
    assert [len(each.components) for each in folded] == [32, 32]


def test_what_is_read_without_malformed_fields_is_not_folded() -> None:
    many = controllers(12)
    many[7] = replace(many[7], malformed=Malformed(1, ("Lease a/b: spec",)))
    components, folded = fold(many)
    assert components == [many[7]]
    assert folded[0].title == "11 V-IPU controllers are up"


def test_the_page_has_each_folded_component_in_full() -> None:
    components, folded = fold([*controllers(9), Component("Prober", UP, "records")])
    context = {"components": components, "folded": folded, "now": NOW, "outage_days": 60}
    text = render_to_string("_system.html", context)
    before, _, inside = text.partition('<details class="folded" id="folded-v-ipu-controller">')
    assert "<summary>9 V-IPU controllers are up</summary>" in inside
    assert ("V-IPU controller" in before, "Prober" in before) == (False, True)
    assert inside.partition("</details>")[0].count("<strong>V-IPU controller v") == 9
