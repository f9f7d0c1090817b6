"""The proxy's `/v1/fleet` answers, and the map drawn from them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dashboard.fleetmap import Reader, draw_fleet
from dashboard.fleetqueue import JobFacts

if TYPE_CHECKING:
    from dashboard.fleetmap import FleetMap

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG_AGO = "2026-11-21T11:00:00.000Z"


def partition(name: str, size: int, **given: Any) -> dict[str, Any]:
    job = {
        "uid": f"uid-{name}",
        "namespace": given.pop("namespace", "a"),
        "name": name,
        "instance": 0,
        "phase": "active",
        "since": given.pop("since", LONG_AGO),
    }
    return {"id": f"p-{name}", "size": size, "state": "ACTIVE", "job": job, **given}


def controller(*partitions: dict[str, Any], machines: int = 8, **given: Any) -> dict[str, Any]:
    holders = [each["id"] for each in partitions for _ in range(each["size"])]
    holders += [None] * (4 * machines - len(holders))
    return {
        "address": "v1:8090",
        "nodeSelector": {"vipu-ctrl": "v1"},
        "reachable": True,
        "message": "",
        "ageSeconds": 0,
        "hasNode": True,
        "placesKnown": True,
        "machines": [
            {
                "agent": f"ag{number}",
                "cluster": "c",
                "domain": number // 16,
                "ipus": [
                    {"position": at % 64, "partition": holders[at]}
                    for at in range(4 * number, 4 * number + 4)
                ],
            }
            for number in range(machines)
        ],
        "partitions": list(partitions),
        **given,
    }


def waiter(name: str, size: int, **given: Any) -> dict[str, Any]:
    block = {"controller": "v1:8090", "cluster": "c", "domain": 0, "start": 16, "size": size}
    return {
        "uid": f"uid-{name}",
        "instance": 0,
        "size": size,
        "since": LONG_AGO,
        "heldBack": False,
        "never": "",
        "inTheWay": 4,
        "block": block,
        "blockers": [],
        **given,
    }


def draw(
    *controllers: dict[str, Any],
    queue: tuple[dict[str, Any], ...] = (),
    running: tuple[str, ...] = (),
    fill: str = "job",
    sees: str = "",
) -> FleetMap:
    """Return the map for a reader of all namespaces, or of the namespace `sees` alone."""
    fleet = {
        "controllers": list(controllers),
        "fits": [{"size": 1, "count": 7}, {"size": 4, "count": 1}, {"size": 32, "count": 0}],
        "queue": list(queue),
    }
    jobs = {
        f"uid-{name}": JobFacts(f"uid-{name}", "a", name, "anna", runs=True) for name in running
    }
    groups = {f"uid-{name}": "ml" for name in running}
    reader = Reader(lambda space: not sees or space == sees, not sees, NOW, fill, groups)
    return draw_fleet(fleet, jobs, reader)


def squares(found: FleetMap) -> list[Any]:
    return [s for block in found.blocks for machine in block.machines for s in machine.squares]
