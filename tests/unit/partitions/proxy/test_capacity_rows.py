"""The cases in which the recorder of capacity writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from partitions.errors import ProxyUnavailable
from partitions.history.capacity import Capacity, capacity_changes


def item(address: str = "v1:8090", **given: Any) -> dict[str, Any]:
    return {"address": address, "reachable": True, "total": 64, "free": 60, "faulty": 0} | given


def silent(address: str = "v1:8090") -> dict[str, Any]:
    return item(address, reachable=False, total=None, free=None, faulty=None)


KNOWN = Capacity("v1:8090", total=64, free=60)


@dataclass
class Case:
    says: str
    items: list[dict[str, Any]]
    known: list[Capacity] = field(default_factory=list)
    want: list[Capacity] = field(default_factory=list)


CASES = [
    Case("the first answer is written", [item()], [], [KNOWN]),
    Case("the same again is not", [item()], [KNOWN]),
    Case(
        "a partition lowers what is free",
        [item(free=56)],
        [KNOWN],
        [Capacity("v1:8090", total=64, free=56)],
    ),
    Case(
        "faulty IPUs are told apart",
        [item(free=56, faulty=4)],
        [KNOWN],
        [Capacity("v1:8090", total=64, free=56, faulty=4)],
    ),
    Case(
        "silent: it keeps its numbers",
        [silent()],
        [KNOWN],
        [Capacity("v1:8090", total=64, free=60, reachable=False)],
    ),
    Case("silent for ever: nothing to tell", [silent()]),
    Case(
        "still silent: nothing new",
        [silent()],
        [Capacity("v1:8090", total=64, free=60, reachable=False)],
    ),
    Case(
        "draining: as if silent",
        [item(reachable=None, total=None, free=None, draining=True)],
        [KNOWN],
        [Capacity("v1:8090", total=64, free=60, reachable=False)],
    ),
    Case("off the list: no IPUs any more", [], [KNOWN], [Capacity("v1:8090", reachable=False)]),
    Case("off the list already", [], [Capacity("v1:8090", reachable=False)]),
    Case("a second controller", [item(), item("v2:8090")], [KNOWN], [Capacity("v2:8090", 64, 60)]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_changes(case: Case) -> None:
    known = {one.controller: one for one in case.known}
    assert list(capacity_changes({"items": case.items, "problem": ""}, known)) == case.want


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"items": [7]},
        {"items": [item(total="64")]},
        {"items": [item(free=-1)]},
        {"items": [item(total=None)]},
        {"items": [item(total=True)]},
    ],
)
def test_an_answer_without_sense_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ProxyUnavailable, match="no"):
        capacity_changes(answer, {})
