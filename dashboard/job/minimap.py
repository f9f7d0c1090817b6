"""domain: the small map of a waiting job: the IPU-Link domain in which its block is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.fleetmap import painter_of
from dashboard.fleetpaint import detail_of
from dashboard.fleetqueue import silent_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dashboard.fleetpaint import Block
    from dashboard.fleetqueue import Holding
    from partitions.fleetjson import ControllerJson, FleetJson


@dataclass(frozen=True, slots=True)
class MiniMap:
    """The machines of the domain, the machines of the job's block as targets, and both in words;
    `is_one`: there is only one IPU-Link domain."""

    block: Block
    words: str
    is_one: bool


def draw_minimap(
    fleet: FleetJson, uid: str, holdings: Mapping[tuple[str, str], Holding], fill: str
) -> MiniMap | None:
    """Draw the map from the answer to `/v1/fleet`.

    The `holdings` include the whole fleet: each job has its colour of the fleet map. None: the job
    has no known block, or its controller does not answer.
    """
    controllers: Sequence[ControllerJson] = fleet.get("controllers") or ()
    waiting = next((each for each in fleet.get("queue") or () if each["uid"] == uid), None)
    wanted = waiting["block"] if waiting else None
    if wanted is None or wanted["controller"] in silent_of(fleet):
        return None
    own = [each for each in controllers if each["address"] == wanted["controller"]]
    if not own:
        return None
    domain = wanted["cluster"], wanted["domain"]
    machines = [m for m in own[0]["machines"] if (m["cluster"], m["domain"]) == domain]
    detail = detail_of(sum(len(machine["ipus"]) for machine in machines))
    painter = painter_of(holdings, fill, wanted, detail)
    block = next(iter(painter.blocks({**own[0], "machines": machines})), None)
    if block is None:
        return None
    domains = {(m["cluster"], m["domain"]) for each in controllers for m in each["machines"]}
    return MiniMap(block, _words(block, wanted["size"]), len(controllers) == len(domains) == 1)


def _words(block: Block, size: int) -> str:
    names = [each.name for each in block.machines if each.is_target and each.key]
    unit = "IPU" if size == 1 else "IPUs"
    where = f", on {names[0]}" if names else ""
    more = f" to {names[-1]}" if len(names) > 1 else ""
    return f"Dashed: the block of {size} {unit} that comes free first{where}{more}."
