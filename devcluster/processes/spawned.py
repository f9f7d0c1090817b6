"""io: one running local process with its streams: pipes, or a terminal.

Also the command lines that run a container's command: with mounts and a host name, or without.

There is no image and no chroot: the command sees this machine's files. If user namespaces are
allowed, its volumes are at their mount paths, in a separate mount namespace; a missing folder is
laid over its nearest existing parent, whose other entries stay reachable as links. Otherwise the
volumes are in $IPUHUB_POD_ROOT.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import shlex
import signal
import struct
import termios
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

if TYPE_CHECKING:
    Sink = Callable[[int, bytes], None]
    """Gets (1 for stdout or 2 for stderr, data) as it comes."""
STDOUT: Final = 1
STDERR: Final = 2
_CHUNK: Final = 32 * 1024
_FULL_SECONDS: Final = 0.02
_REAPED_SECONDS: Final = 0.005
_DRAIN_SECONDS: Final = 1.0  # for output that a left child still holds open


class Spawned:
    """A process in a session, and so a process group, of its own."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int | None) -> None:
        self._process, self._terminal = process, terminal
        self.sinks: list[Sink] = []
        self._readers: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()
        self._ends_group = False
        self.code = 0

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def read(self, *sinks: Sink, ends_group: bool = False) -> None:
        """Begin to hand its output to `sinks` (and to those in `sinks` later); wait for its end.

        `ends_group`: with it end the processes that it left behind, as in a container.
        """
        self._ends_group = ends_group
        self.sinks.extend(sinks)
        if self._terminal is not None:
            self._readers = [asyncio.create_task(self._read_terminal(self._terminal))]
        else:
            streams = ((STDOUT, self._process.stdout), (STDERR, self._process.stderr))
            self._readers = [
                asyncio.create_task(self._read(number, stream))
                for number, stream in streams
                if stream is not None
            ]
        self._waiter = asyncio.create_task(self._wait())

    async def write(self, data: bytes) -> None:
        """Give it input; what it no longer reads is dropped."""
        with contextlib.suppress(OSError, RuntimeError):
            if self._terminal is not None:
                await self._type(self._terminal, data)
            elif self._process.stdin is not None:
                self._process.stdin.write(data)
                await self._process.stdin.drain()

    def end_input(self) -> None:
        """Close its standard input; on a terminal that is Ctrl-D."""
        with contextlib.suppress(OSError):
            if self._terminal is not None:
                os.write(self._terminal, b"\x04")
            elif self._process.stdin is not None:
                self._process.stdin.close()

    def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal."""
        if self._terminal is not None:
            size = struct.pack("HHHH", height, width, 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def signal_group(self, number: int) -> None:
        """Send a signal to it and to its children of the same group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    async def _type(self, terminal: int, data: bytes) -> None:
        """Write to the terminal, which takes only as much as the process has not read."""
        while data:
            try:
                data = data[os.write(terminal, data) :]
            except BlockingIOError:
                await asyncio.sleep(_FULL_SECONDS)

    async def _read(self, number: int, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_CHUNK):
            self._tell(number, data)

    async def _read_terminal(self, terminal: int) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(terminal, ready.set)
        try:
            while True:
                await ready.wait()
                ready.clear()
                with contextlib.suppress(BlockingIOError):
                    data = os.read(terminal, _CHUNK)
                    if not data:
                        return
                    self._tell(STDOUT, data)
        except OSError:
            return  # the other end is closed
        finally:
            loop.remove_reader(terminal)

    def _tell(self, number: int, data: bytes) -> None:
        for sink in tuple(self.sinks):
            sink(number, data)

    async def _wait(self) -> None:
        await _exited(self.pid)
        if self._ends_group:
            self.signal_group(signal.SIGKILL)
        _, pending = await asyncio.wait(self._readers, timeout=_DRAIN_SECONDS)
        for task in pending:
            task.cancel()
        # The watcher of children reaps it in a moment; waiting for the pipes may never end.
        while (code := self._process.returncode) is None:  # noqa: ASYNC110
            await asyncio.sleep(_REAPED_SECONDS)
        if self._terminal is not None:
            await asyncio.gather(*self._readers, return_exceptions=True)
            os.close(self._terminal)
            self._terminal = None
        self.code = code if code >= 0 else 128 - code
        self.ended.set()


async def _exited(pid: int) -> None:
    """Return when the process has ended, even if another process holds its output open. asyncio's
    own wait also waits for the pipes, which a remaining child can hold without end."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)


async def spawn(
    command: Sequence[str], env: Mapping[str, str], *, tty: bool, stdin: bool
) -> Spawned:
    """Start a process; `read` begins to read it. Raises OSError."""
    none, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    if not tty:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(env),
            stdin=pipe if stdin else none,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        return Spawned(process, None)
    master, slave = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            "setsid", "--ctty", *command, env=dict(env), stdin=slave, stdout=slave, stderr=slave
        )
    except OSError:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    return Spawned(process, master)


POD_ROOT: Final = "IPUHUB_POD_ROOT"
_DIES_WITH_ME: Final = ("setpriv", "--pdeathsig", "KILL", "--")
OWN_NAMESPACES: Final = ("unshare", "--user", "--map-root-user", "--mount", "--uts")
_LAY: Final = """\
lay() { # lay SOURCE TARGET: SOURCE is seen at TARGET
  if [ ! -e "$2" ]; then
    parent=$(dirname "$2"); while [ ! -d "$parent" ]; do parent=$(dirname "$parent"); done
    [ "$parent" = / ] && { echo "no folder to mount $2 in: make it on this machine" >&2; exit 126; }
    n=$((n + 1)); mkdir -p "$work/$n"
    mount -t tmpfs none "$work/$n"; mkdir "$work/$n/old" "$work/$n/new"
    mount --rbind "$parent" "$work/$n/old"
    for one in "$work/$n/old"/* "$work/$n/old"/.[!.]*; do
      [ -e "$one" ] || continue
      name=${one##*/}
      case "$work/" in # a link to the folder that holds the links would go in circles
        "$parent/$name/"*)
          mkdir "$work/$n/new/$name"; mount --rbind "$parent/$name" "$work/$n/new/$name" ;;
        *) ln -s "$one" "$work/$n/new/" ;;
      esac
    done
    mount --rbind "$work/$n/new" "$parent"
    if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "$(dirname "$2")"; : > "$2"; fi
  fi
  mount --rbind "$1" "$2"
}
n=0
"""


@dataclass(frozen=True)
class Place:
    """The place in which a container runs: its working directory, an empty spare folder, its host
    name."""

    folder: str
    spare: str
    host: str


def container_command(
    command: Sequence[str], mounts: Sequence[tuple[str, str]], place: Place, *, is_isolated: bool
) -> list[str]:
    """The command line of a container; `mounts` are (source, mount path)."""
    if not is_isolated:
        return [*_DIES_WITH_ME, *_from(place.folder), *command]
    lines = [f"set -e; work={shlex.quote(place.spare)}", _LAY]
    lines += [f"lay {shlex.quote(source)} {shlex.quote(at)}" for source, at in mounts]
    lines += [f"hostname {shlex.quote(place.host)}", "set +e"]
    lines += [f"cd {shlex.quote(place.folder)} || exit 126", 'exec "$@"']
    return [*OWN_NAMESPACES, "--", *_DIES_WITH_ME, "sh", "-c", "\n".join(lines), "sh", *command]


def exec_command(pid: int, command: Sequence[str], folder: str, *, is_isolated: bool) -> list[str]:
    """The command line of another process beside the container's own."""
    line = [*_DIES_WITH_ME, *_from(folder), *command]
    if not is_isolated:
        return line
    into = ("nsenter", "--target", str(pid), "--user", "--mount", "--uts")
    return [*into, "--preserve-credentials", "--", *line]


def _from(folder: str) -> tuple[str, ...]:
    return ("sh", "-c", f'cd {shlex.quote(folder)} && exec "$@"', "sh")
