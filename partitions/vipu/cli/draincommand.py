"""io: `vipu-admin drain agent`: drains a machine and shows the progress."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from partitions.vipu.cli.output import plain
from partitions.vipu.errors import Unavailable, VipuError
from partitions.vipu.protos import vipu_admin_pb2 as pb

if TYPE_CHECKING:
    import argparse

    from partitions.vipu.client import VipuClient

POLL_SECONDS: Final = 1.0


async def drain_agent(client: VipuClient, options: argparse.Namespace) -> None:
    """Cordon a machine and wait until no partition is on it. Raise VipuError.

    Retries while the controller is unavailable, because the wait may take hours.
    """
    name, progress = options.name, _Progress(options.name)
    order = pb.DrainAgentRequest(agent_id=name, reason=options.reason, force=options.force)
    progress.show(await client.ask("DrainAgent", order))
    # Who ends the cordon ends the drain, and who gives it another reason has the last word.
    order = pb.DrainAgentRequest(agent_id=name, force=options.force, resume=True)
    try:
        async with asyncio.timeout(options.timeout or None):
            while progress.is_waiting and not options.no_wait:
                await asyncio.sleep(POLL_SECONDS)
                try:
                    progress.show(await client.ask("DrainAgent", order))
                except Unavailable as error:
                    progress.say(f"{error}. Trying again until Ctrl-C or --timeout")
    except TimeoutError:
        pass
    if progress.is_waiting:
        waited = "" if options.no_wait else f" after {options.timeout:g} s"
        raise VipuError(f"not empty{waited}: {progress.summary}. The machine stays cordoned")


@dataclass(slots=True)
class _Progress:
    """Writes what has changed, a line each, beside the command's result."""

    agent: str
    remaining: dict[str, str] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    is_cordoned: bool = False
    unheard: str = ""  # why the machine may have more to free than remains here
    last: str = ""

    @property
    def is_waiting(self) -> bool:
        """Return whether the machine is not known to be empty."""
        return bool(self.remaining or self.unheard)

    @property
    def summary(self) -> str:
        """The partitions that are still there, and why."""
        lines = [f"{name}: {reason}" for name, reason in self.remaining.items()]
        return "; ".join([*lines, self.unheard] if self.unheard else lines)

    def show(self, reply: pb.DrainAgentReply) -> None:
        """Write what has happened since the last answer."""
        if not self.is_cordoned:
            self.is_cordoned = True
            self.say(f"{self.agent} is cordoned")
        moved = {partition.partition_id: " ".join(partition.agent_ids) for partition in reply.moved}
        for name, where in moved.items():
            self.say(f"partition {name} has moved to {where}")
        for name in reply.ended:
            self.say(f"partition {name} has been ended")
        now = {partition.partition_id: partition.why for partition in reply.remaining}
        self.moved |= moved.keys()
        if reply.unheard:  # it may not have freed yet what has moved
            now = {
                name: self.remaining[name] for name in self.remaining if name in self.moved
            } | now
        for name in self.remaining.keys() - now.keys() - moved.keys() - set(reply.ended):
            is_moved = name in self.moved
            self.say(
                f"{self.agent} no longer holds partition {name}"
                if is_moved
                else f"partition {name} is gone"
            )
        for name, reason in now.items():
            if self.remaining.get(name) != reason:
                self.say(f"waiting for partition {name}: {reason}")
        self.remaining = now
        self.unheard = ""
        if reply.unheard:
            self.unheard = f"{self.agent} has not answered since vipu-server was started"
            self.say(f"waiting for {self.agent}: it {self.unheard.partition(' ')[2]}")

    def say(self, text: str) -> None:
        """Write a line unless it is the last one again."""
        if text != self.last:
            self.last = text
            sys.stderr.write(f"{plain(text)}\n")
            sys.stderr.flush()
