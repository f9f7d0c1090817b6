"""The supervisor runs real children: prefixes, restarts, order of stopping, no orphans."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devcluster.demo.ports import PortClaims, choose_port
from devcluster.demo.supervisor import NotReadyError, Process, Supervisor
from tests.fakes.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from devcluster.demo.supervisor import Child


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def is_running(pid: str) -> bool:
    """Return whether the process lives; a process that init has not collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


async def kill(supervisor: Supervisor, name: str) -> None:
    """Kill a child that has begun to work; the supervisor may learn its id a moment later."""
    await eventually(lambda: supervisor.pid(name) is not None)
    pid = supervisor.pid(name)
    assert pid  # 0 would be this process and its whole group
    os.kill(pid, signal.SIGKILL)


async def test_each_line_of_a_child_carries_its_name() -> None:
    lines: list[str] = []
    supervisor = Supervisor(output=lines.append)
    code = "print('hello'); import sys; print('trouble', file=sys.stderr); input()"
    supervisor.start(Process("talker", python(f"{code}\nimport time; time.sleep(60)")))
    supervisor.start(Process("a", python("import time; time.sleep(60)")))
    await eventually(lambda: {"talker | hello", "talker | trouble"} <= set(lines))
    await supervisor.stop()


async def test_a_child_that_is_killed_starts_again_and_the_log_says_so(tmp_path: Path) -> None:
    lines: list[str] = []
    supervisor = Supervisor(output=lines.append)
    mark = tmp_path / "starts"
    code = f"open({str(mark)!r}, 'a').write('x'); import time; time.sleep(60)"
    supervisor.start(Process("worker", python(code)))
    await eventually(lambda: mark.exists() and mark.read_text() == "x")
    await kill(supervisor, "worker")
    await eventually(lambda: mark.read_text() == "xx")
    await supervisor.stop()
    assert any("ended with signal SIGKILL; starts again in" in line for line in lines)


async def test_what_a_killed_child_leaves_behind_ends_before_it_starts_again(
    tmp_path: Path,
) -> None:
    """A server's worker inherits its port and its output and outlives a kill -9 of it."""
    mark = tmp_path / "workers"
    code = (
        "import subprocess, sys, time\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(mark)!r}, 'a').write(f'{{worker.pid}} ')\n"
        "time.sleep(60)"
    )
    supervisor = Supervisor(output=lambda _line: None)
    supervisor.start(Process("server", python(code)))
    await eventually(lambda: mark.exists() and len(mark.read_text().split()) == 1)
    await kill(supervisor, "server")
    await eventually(lambda: len(mark.read_text().split()) == 2)
    first, second = mark.read_text().split()
    assert not is_running(first)
    await kill(supervisor, "server")
    async with asyncio.timeout(90):
        await supervisor.stop()
    await eventually(lambda: not is_running(second))


async def test_children_stop_in_reverse_order(tmp_path: Path) -> None:
    mark = tmp_path / "order"
    ready = tmp_path / "ready"
    code = (
        "import signal, sys, time\n"
        f"def end(*_): open({str(mark)!r}, 'a').write(sys.argv[1]); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"open({str(ready)!r}, 'a').write('r')\n"
        "time.sleep(60)"
    )
    supervisor = Supervisor(output=lambda _line: None)
    for name in "ab":
        supervisor.start(Process(name, [*python(code), name]))
    await eventually(lambda: ready.exists() and ready.read_text() == "rr")
    await supervisor.stop()
    assert mark.read_text() == "ba"
    assert supervisor.pid("a") is None


class SlowSecondStart:
    """Starts nothing itself, and takes its time over the second process."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_late, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def fork(self, *_request: object) -> Child:
        self.calls += 1
        if self.calls > 1:
            self.is_late.set()
            await self.may_go_on.wait()
        raise OSError("no fork: it is executed")


async def test_a_child_that_starts_again_while_all_are_stopped_ends_too(tmp_path: Path) -> None:
    mark, slow = tmp_path / "starts", SlowSecondStart()
    code = (
        f"import os, time; mark = {str(mark)!r}; again = os.path.exists(mark)\n"
        "open(mark, 'a').close(); time.sleep(600 * again)"
    )
    supervisor = Supervisor(output=lambda _line: None, forks=slow)
    supervisor.start(Process("server", python(code)))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await slow.is_late.wait()
        stopping = asyncio.create_task(supervisor.stop())
        await asyncio.sleep(0)  # it has looked at the child that ended
        slow.may_go_on.set()
        await stopping
    assert supervisor.pid("server") is None


async def test_a_child_that_never_serves_is_reported_by_name() -> None:
    async def never() -> bool:
        return False

    supervisor = Supervisor(output=lambda _line: None)
    supervisor.start(Process("mute", python("import time; time.sleep(60)"), is_ready=never))
    with pytest.raises(NotReadyError, match="mute did not become ready"):
        await supervisor.wait_ready("mute", timeout_seconds=0.2)
    await supervisor.stop()


async def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    child = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "import asyncio, sys\n"
        "from devcluster.demo.supervisor import Process, Supervisor\n"
        "async def main():\n"
        f"    Supervisor().start(Process('c', [sys.executable, '-c', {child!r}]))\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    parent = await asyncio.create_subprocess_exec(*python(code))
    await eventually(lambda: mark.exists() and mark.read_text() != "")
    parent.kill()
    await parent.wait()
    await eventually(lambda: not is_running(mark.read_text()))


def test_a_taken_port_moves_to_the_next_free_one_and_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = taken.getsockname()[1]
        port = choose_port("the page", wanted, set())
    assert port.number > wanted
    assert port.notice == f"port {wanted} is taken: the page uses {port.number}"


def test_a_port_that_another_demo_means_to_use_is_left_to_it() -> None:
    ours, theirs = PortClaims(), PortClaims()
    try:
        wanted = choose_port("a", 23456, set(), theirs.take).number
        port = choose_port("a", wanted, set(), ours.take)
        assert port.number > wanted
        assert port.notice.startswith(f"port {wanted} is taken")
        theirs.close()
        assert choose_port("a", wanted, set(), ours.take).number == wanted
    finally:
        ours.close()
        theirs.close()


def test_two_purposes_never_get_one_port() -> None:
    taken: set[int] = set()
    first = choose_port("a", 23456, taken)
    second = choose_port("b", 23456, taken)
    assert first.number != second.number
