"""io: runs a set of processes as children: prefixed logs, restarts, one clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from devcluster.demo.kinship import end_with_parent
from ipuhub.backoff import exponential

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

_STOP_SECONDS = 25.0
# A dozen processes start together: on a small machine under load that took more than a minute.
_READY_SECONDS = 240.0
_LAST_LINES_SECONDS = 2.0  # for the last lines of a child that has ended
_STEADY_SECONDS = 20.0  # a child that ran this long starts its back-off from the beginning
_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93)


@dataclass(frozen=True)
class Process:
    """One child: what to run, and how to know that it serves.

    `stdin` opens its standard input, which is empty without.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[], Awaitable[bool]] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stdin: Callable[[], int] | None = None


class Child(Protocol):
    """A running process, as asyncio has it."""

    pid: int

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, signal: signal.Signals, /) -> None: ...


class Forks(Protocol):
    """Starts Python processes as children of ours."""

    async def fork(
        self, command: Sequence[str], environment: Mapping[str, str], output: int
    ) -> Child:
        """Start `command` with `output` as its output and no input. Raise OSError if it cannot."""


class NotReadyError(RuntimeError):
    """A child did not become ready in time; `name` is the child's."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"{name} did not become ready within {seconds:.0f} s; its log says why")
        self.name = name


class Supervisor:
    """Starts children, restarts those that end, and stops all in reverse order.

    Children live in process groups of their own, so that a Ctrl-C reaches only us and they end
    in order; if we are killed, the kernel ends them too.

    `output` gets lines with a prefix. With `logs`, what the children print goes there, by name.
    With `forks`, Python processes are started by it as long as it can, and by an exec otherwise.
    """

    def __init__(
        self,
        *,
        output: Callable[[str], None] | None = None,
        logs: Callable[[str, str], None] | None = None,
        forks: Forks | None = None,
    ) -> None:
        self._output = output or _print_line
        self._logs = logs or self.say
        self._forks = forks
        self._children: dict[str, Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, Process] = {}
        self._stopping = asyncio.Event()

    def start(self, process: Process) -> None:
        """Run `process` from now on; returns at once."""
        self._processes[process.name] = process
        self._tasks[process.name] = asyncio.create_task(self._keep_running(process))

    async def wait_ready(self, *names: str, timeout_seconds: float = _READY_SECONDS) -> None:
        """Wait until the named children serve."""
        await asyncio.gather(*(self._wait_one(self._processes[n], timeout_seconds) for n in names))

    async def stop(self) -> None:
        """Stop all children, the last started first; the stubborn by SIGKILL."""
        self._stopping.set()
        for name in reversed(list(self._tasks)):
            child = self._children.get(name)
            if child is not None and child.returncode is None:
                self._signal(child, self._processes[name].stop_signal)
                try:
                    await asyncio.wait_for(child.wait(), _STOP_SECONDS)
                except TimeoutError:
                    self.say(name, f"did not stop within {_STOP_SECONDS:.0f} s: killed")
                    self._signal(child, signal.SIGKILL)
            task = self._tasks[name]
            if child is None:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def pid(self, name: str) -> int | None:
        """Return the process id of a running child."""
        child = self._children.get(name)
        return child.pid if child is not None and child.returncode is None else None

    async def _wait_one(self, process: Process, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        while process.is_ready is not None and not await process.is_ready():
            if time.monotonic() > deadline:
                raise NotReadyError(process.name, timeout_seconds)
            await asyncio.sleep(0.05)

    async def _keep_running(self, process: Process) -> None:
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_once(process)
            if self._stopping.is_set():
                return
            failures = 0 if time.monotonic() - started > _STEADY_SECONDS else failures + 1
            delay = exponential(max(failures - 1, 0), base=0.5, maximum=15.0)
            self.say(process.name, f"ended with {_outcome(code)}; starts again in {delay:.1f} s")
            await asyncio.sleep(delay)

    async def _run_once(self, process: Process) -> int:
        """Run `process` to its end, and end its remaining children; return its exit code.

        The pipe is ours: asyncio's own would let us wait until everything that inherited it has
        ended, and a server's worker outlives a killed server, and keeps its port.
        """
        read_end, write_end = os.pipe()
        try:
            child = await self._start(process, write_end)
        finally:
            os.close(write_end)
        self._children[process.name] = child
        if self._stopping.is_set():  # `stop` saw the child before this one, which had ended
            self._signal(child, signal.SIGKILL)
        forwarding = asyncio.create_task(self._forward(process.name, read_end))
        code = await child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await asyncio.wait({forwarding}, timeout=_LAST_LINES_SECONDS)
        forwarding.cancel()
        return code

    async def _start(self, process: Process, output: int) -> Child:
        environment = {**os.environ, **process.env}
        if self._forks is not None and process.stdin is None:
            is_python = process.command[0] == sys.executable
            with contextlib.suppress(OSError):
                if is_python:
                    return await self._forks.fork(process.command, environment, output)
        stdin = process.stdin() if process.stdin is not None else None
        try:
            return await asyncio.create_subprocess_exec(
                *process.command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        finally:
            if stdin is not None:
                os.close(stdin)

    async def _forward(self, name: str, read_end: int) -> None:
        reader = asyncio.StreamReader(limit=1 << 20)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb")
        )
        with contextlib.closing(transport):
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # a line longer than the limit: its rest follows
                    continue
                if not line:
                    return
                self._logs(name, line.decode("utf-8", "replace").rstrip())

    def say(self, name: str, line: str) -> None:
        """Output a line about a child, or of it."""
        width = max(map(len, self._processes))
        prefix = f"{name:<{width}} |"
        if sys.stdout.isatty():
            colour = _COLOURS[list(self._processes).index(name) % len(_COLOURS)]
            prefix = f"\033[{colour}m{prefix}\033[0m"
        self._output(f"{prefix} {line}")

    @staticmethod
    def _signal(child: Child, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)


def _outcome(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # the supervisor's output is its purpose
