"""io: loads the state of a fleet from a state file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from partitions.vipu.server.layout import layout_of
from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.state import Draft, State
from partitions.vipu.server.statefile import StateFileError

if TYPE_CHECKING:
    from partitions.vipu.server.statefile import StateFile
    from partitions.vipu.topology import Topology

log = structlog.get_logger(__name__)


def load_state(topology: Topology, file: StateFile) -> State:
    """Return the stored state of this fleet; raises StateFileError where the file describes another
    fleet."""
    draft, found = Draft(State({}, {}, Occupancy.of(topology), layout_of(topology))), file.load()
    for agent in found.agents.values():
        if any(ipu.agent == agent.id for ipu in topology.ipus):
            raise StateFileError(
                f"--agents names an agent {agent.id}, and so does {file.path}, at {agent.address}: "
                "start without the additional --agents and create these with vipu-admin"
            )
        draft.put_agent(agent)
    if found.layout is not None:
        try:
            draft.put_layout(found.layout)
        except KeyError as error:
            raise StateFileError(
                f"the clusters in {file.path} name agent {error.args[0]}, which this fleet of "
                f"{len(topology)} IPUs does not have: start with the --machines it was made with"
            ) from error
        log.info("clusters and allocations come from the state file", path=str(file.path))
    for record in found.partitions.values():
        for ipu in record.ipus:
            if ipu not in draft.occupancy.topology.by_id:
                raise StateFileError(
                    f"partition {record.id} in {file.path} holds IPU {ipu.position} of "
                    f"IPU-Link domain {ipu.domain}, which this fleet of {len(topology)} "
                    "IPUs does not have: start with the --machines it was made with"
                )
            if holder := draft.occupancy.holder(ipu):
                raise StateFileError(
                    f"the state file {file.path} is damaged: {holder} and "
                    f"{record.id} hold the same IPU. It was left as it is"
                )
        draft.put(record)
    for machine in found.machines.values():
        draft.put_machine(machine)
    for user in found.users.values():
        draft.put_user(user)
    return draft.state
