"""io: whether the IPUoF ports of a partition that was just set up answer, in bounded time."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from partitions.vipu.server import outages
from partitions.vipu.server.machines import device_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partitions.vipu.server.agentfleet import Machines
    from partitions.vipu.server.machines import DevicePort, Hardware
    from partitions.vipu.server.records import PartitionRecord

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 1.0
# A machine that says READY opens its ports at once; what is closed for longer stays closed.
PATIENCE_SECONDS: Final = 3.0
_IPV6: Final = 6
_Key: TypeAlias = tuple[str, str]  # a partition and its generation


@dataclass(slots=True)
class IpuofProbes:
    """Asks the ports of one machine's partitions, and remembers since when they do not answer."""

    _closed_since: dict[_Key, float] = field(default_factory=dict)

    async def closed(
        self, agent: str, begun: Mapping[_Key, PartitionRecord], machines: Machines, facts: Hardware
    ) -> set[_Key]:
        """Those of the partitions that a machine has just set up whose ports do not all answer.

        Tell `machines` of those that have not done so for too long.
        """
        for key in self._closed_since.keys() - begun.keys():
            del self._closed_since[key]
        problems = await asyncio.gather(
            *(
                _problem(device_ports(record, agent, machines.topology, facts))
                for record in begun.values()
            )
        )
        found, now = set(), time.monotonic()
        for (key, record), problem in zip(begun.items(), problems, strict=True):
            if not problem:
                continue
            found.add(key)
            if now - self._closed_since.setdefault(key, now) >= PATIENCE_SECONDS:
                del self._closed_since[key]
                await asyncio.to_thread(_fail_start, machines, record, problem)
        return found


def _fail_start(machines: Machines, record: PartitionRecord, problem: str) -> None:
    log.warning("IPUoF port does not answer", partition=record.id, problem=problem)
    now = machines.clock()
    machines.change(
        lambda draft: outages.fail_start(draft, record, problem, now),
        "IPUoF port does not answer",
        partition=record.id,
        problem=problem,
    )


async def _problem(ports: Sequence[DevicePort]) -> str:
    """A sentence on the ports that do not answer, all asked at once; empty if all do."""
    found = await asyncio.gather(*map(why_closed, ports))
    return "; ".join(filter(None, found))


async def why_closed(device: DevicePort) -> str:
    """Return a sentence that names machine and port where it does not answer; empty if it does."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await _connect(device.host, device.port)
    except ConnectionResetError:
        return ""  # accepted, then reset: a closed port refuses
    except TimeoutError:
        why = f"no answer within {ASK_SECONDS:g} s"
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
    else:
        return ""
    return (
        f"{device.agent}: the IPUoF port {device.host}:{device.port} of IPU {device.index} does "
        f"not answer: {why}"
    )


async def _connect(host: str, port: int) -> None:
    """Connect and hang up; raises OSError."""
    try:
        family = socket.AF_INET6 if ip_address(host).version == _IPV6 else socket.AF_INET
    except ValueError:  # a name, of whatever family
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return
    with socket.socket(family) as connection:  # streams cost many times as much
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
