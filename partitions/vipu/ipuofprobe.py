"""io: checks within a time limit whether the IPUoF ports of a newly created partition answer."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from partitions.vipu.server.machines import device_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partitions.vipu.server.agents.fleet import Machines
    from partitions.vipu.server.machines import DevicePort, Hardware
    from partitions.vipu.server.records import PartitionRecord


ASK_SECONDS: Final = 1.0
# A READY machine opens its ports at once; a port that is closed for longer stays closed.
PATIENCE_SECONDS: Final = 3.0
_Key: TypeAlias = tuple[str, str]  # a partition and its generation
_Address: TypeAlias = tuple[int, str, tuple[int, ...]]  # family, address, what follows the port
# A silent name server holds these, and not the threads in which the state is changed.
_RESOLVERS: Final = ThreadPoolExecutor(4, thread_name_prefix="resolve")


@dataclass(slots=True)
class IpuofProbes:
    """Asks the ports of one machine's partitions, and remembers since when they do not answer."""

    _closed_since: dict[_Key, float] = field(default_factory=dict)

    async def closed(
        self, agent: str, begun: Mapping[_Key, PartitionRecord], machines: Machines, facts: Hardware
    ) -> set[_Key]:
        """Newly created partitions of a machine whose ports do not all answer yet.

        Report partitions whose ports take too long to `machines`.
        """
        for key in self._closed_since.keys() - begun.keys():
            del self._closed_since[key]
        ports = [device_ports(record, agent, machines.topology, facts) for record in begun.values()]
        hosts = dict.fromkeys(device.host for devices in ports for device in devices)
        found_hosts = await asyncio.gather(*map(_look_up, hosts))
        lookups = dict(zip(hosts, found_hosts, strict=True))
        problems = await asyncio.gather(*(_problem(devices, lookups) for devices in ports))
        found, now = set(), time.monotonic()
        for (key, record), problem in zip(begun.items(), problems, strict=True):
            if not problem:
                continue
            found.add(key)
            if now - self._closed_since.setdefault(key, now) >= PATIENCE_SECONDS:
                del self._closed_since[key]
                await asyncio.to_thread(machines.fail_part, record, problem)
        return found


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The addresses of a host, or why there are none."""

    addresses: tuple[_Address, ...] = ()
    problem: str = ""


async def _look_up(host: str) -> _Lookup:
    ask = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    try:
        found = ask(flags=socket.AI_NUMERICHOST)  # without a DNS query
    except OSError:  # a name
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, ask)
        except TimeoutError:
            return _Lookup(problem=f"no address of {host} within {ASK_SECONDS:g} s")
        except (OSError, UnicodeError) as error:
            return _Lookup(problem=getattr(error, "strerror", None) or str(error))
    return _Lookup(tuple((family, str(at[0]), at[2:]) for family, _, _, _, at in found))


async def _problem(ports: Sequence[DevicePort], lookups: Mapping[str, _Lookup]) -> str:
    """A message about the ports that do not answer, all probed at once; empty if all do."""
    found = await asyncio.gather(*(_sentence(each, lookups[each.host]) for each in ports))
    return "; ".join(filter(None, found))


async def _sentence(device: DevicePort, host: _Lookup) -> str:
    """Name machine and port where it does not answer; empty if it does."""
    reason = host.problem or await _why_closed(host.addresses, device.port)
    if not reason:
        return ""
    return (
        f"{device.agent}: the IPUoF port {device.host}:{device.port} of IPU {device.index} does "
        f"not answer: {reason}"
    )


async def _why_closed(addresses: Sequence[_Address], port: int) -> str:
    """Return why the port answers at none of the addresses; empty if it answers at any."""
    reason = ""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            for address in addresses:
                if not (reason := await _refusal(address, port)):
                    break
    except TimeoutError:
        return f"no answer within {ASK_SECONDS:g} s"
    return reason


async def _refusal(address: _Address, port: int) -> str:
    """Connect and hang up, and return what the operating system says against it."""
    family, host, rest = address
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, (host, port, *rest))
    except ConnectionResetError:
        return ""  # accepted, then reset: a closed port refuses
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return ""
