"""io: discovery of agents: each announces itself by multicast, and vipu-server listens.

An announcement is only a hint and adds no agent to a fleet. An administrator creates the agent, and
the connection to it is verified like any other.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

log = structlog.get_logger(__name__)
GROUP: Final = "239.255.80.91"  # of this site only (RFC 2365)
PORT: Final = 8092
FORMAT: Final = "ipuhub-vipu-agent"
ANNOUNCE_SECONDS: Final = 5.0
FORGOTTEN_SECONDS: Final = 60.0
MOST_KEPT: Final = 1024
_MOST_BYTES: Final = 512
_LONGEST_ID: Final = 63
_LARGEST_PORT: Final = 65535
_POLL_SECONDS: Final = 0.2
_EVERYWHERE: Final = ("0.0.0.0", "::")  # what --host may say
_PKTINFO: Final = struct.Struct("=I4s4s")  # in_pktinfo: the interface comes first
_IP_PKTINFO: Final = getattr(socket, "IP_PKTINFO", 8)


@dataclass(frozen=True, slots=True)
class Announcement:
    """An agent by its own words, and where they came from."""

    agent: str
    host: str
    port: int
    interface: str
    seen_at: float  # by a monotonic clock


def announcement(agent: str, port: int) -> bytes:
    """Return the datagram that an agent sends."""
    return json.dumps({"format": FORMAT, "agent": agent, "port": port}).encode()


def read_announcement(data: bytes, host: str, interface: str, now: float) -> Announcement | None:
    """The agent that an announcement names; None for anything else that comes in."""
    try:
        announcement: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(announcement, dict) or announcement.get("format") != FORMAT:
        return None
    agent, port = announcement.get("agent"), announcement.get("port")
    if not isinstance(agent, str) or not 0 < len(agent) <= _LONGEST_ID or not agent.isprintable():
        return None
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port <= _LARGEST_PORT:
        return None
    return Announcement(agent, host, port, interface, now)


class Discovery:
    """Listens on network interfaces and keeps the agents that announced themselves in the last
    minute."""

    def __init__(
        self, interfaces: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._indexes = _indexes(interfaces)
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._listen, name="discovery", daemon=True)
        self._stopping = threading.Event()
        self._heard: dict[tuple[str, int], Announcement] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to listen; raises OSError."""
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            found.bind((GROUP, PORT))
            for index in self._indexes:
                found.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _membership(index))
            found.settimeout(_POLL_SECONDS)
        except OSError:
            found.close()
            raise
        self._socket = found
        self._thread.start()
        log.info("listening for agents", interfaces=list(self._indexes.values()), port=PORT)

    def stop(self) -> None:
        """Listen no longer."""
        self._stopping.set()
        if self._socket is not None:
            self._thread.join()
            self._socket.close()

    def agents(self) -> list[tuple[Announcement, float]]:
        """The agents, each with the seconds since its announcement, by host and port."""
        now = self._clock()
        with self._lock:
            self._forget(now)
            found = sorted(self._heard.items())
        return [(agent, max(now - agent.seen_at, 0.0)) for _, agent in found]

    def hear(self, agent: Announcement) -> None:
        """Store an announcement; if there are too many, drop the oldest."""
        with self._lock:
            self._forget(agent.seen_at)
            self._heard.pop((agent.host, agent.port), None)
            if len(self._heard) >= MOST_KEPT:
                del self._heard[next(iter(self._heard))]
            self._heard[agent.host, agent.port] = agent

    def _forget(self, now: float) -> None:
        old = [key for key, agent in self._heard.items() if now - agent.seen_at > FORGOTTEN_SECONDS]
        for key in old:
            del self._heard[key]

    def _listen(self) -> None:
        while not self._stopping.is_set():
            with suppress(OSError):  # a timeout, too
                self._take()

    def _take(self) -> None:
        if self._socket is None:
            return
        data, more, _, (host, *_) = self._socket.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(64))
        for level, kind, info in more:
            if (level, kind) != (socket.IPPROTO_IP, _IP_PKTINFO):
                continue
            interface = self._indexes.get(_PKTINFO.unpack_from(info)[0])
            found = read_announcement(data, host, interface or "", self._clock())
            if interface is not None and found is not None:
                self.hear(found)


class Announcer:
    """Announces the agents of one process on network interfaces until it is cancelled.

    `host` is where they listen: the announcements come from there. Raises ValueError.
    """

    def __init__(self, interfaces: Sequence[str], host: str, ports: Mapping[str, int]) -> None:
        if ":" in host and host not in _EVERYWHERE:
            raise ValueError(f"announcements are IPv4, and --host {host} is not: leave out either")
        self._indexes = _indexes(interfaces)
        self._source = "" if host in _EVERYWHERE else host
        self._ports = ports

    async def run(self) -> None:
        """Announce each agent, and again every few seconds."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.bind((self._source, 0))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            announced: set[str] = set()
            while True:
                for index, interface in self._indexes.items():
                    if problem := self._announce(sender, index):
                        if interface not in announced:
                            log.warning("not announced", interface=interface, error=problem)
                        announced.add(interface)
                await asyncio.sleep(ANNOUNCE_SECONDS)

    def _announce(self, sender: socket.socket, index: int) -> str:
        try:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _membership(index))
            for agent, port in self._ports.items():
                sender.sendto(announcement(agent, port), (GROUP, PORT))
        except OSError as error:  # an interface that is down now
            return str(error)
        return ""


def _indexes(interfaces: Sequence[str]) -> dict[int, str]:
    """The interfaces by number; raises ValueError for an interface that this host does not have."""
    found = {}
    for name in interfaces:
        try:
            found[socket.if_nametoindex(name)] = name
        except OSError:
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise ValueError(
                f"there is no network interface {name!r} here; there are {names}"
            ) from None
    return found


def _membership(index: int) -> bytes:
    return struct.pack("=4s4si", socket.inet_aton(GROUP), socket.inet_aton("0.0.0.0"), index)
