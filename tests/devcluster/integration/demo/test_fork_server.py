"""The fork server: forked processes behave like executed ones, and outlive the server."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.demo.forks import ForkServer
from devcluster.demo.supervisor import Process, Supervisor
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parents[4]
REPORT = """
import json, os, random, signal, sys
from pathlib import Path
me = Path('/proc/self')
json.dump({
    'pid': os.getpid(), 'parent': os.getppid(), 'session': os.getsid(0), 'group': os.getpgrp(),
    'command': (me / 'cmdline').read_text().rstrip(chr(0)).split(chr(0)),
    'kernel': (me / 'environ').read_text().rstrip(chr(0)).split(chr(0)),
    'environment': dict(os.environ), 'argv': sys.argv, 'name': __name__, 'path': sys.path[0],
    'title': (me / 'comm').read_text(), 'input': os.readlink('/proc/self/fd/0'),
    'files': sorted(os.listdir('/proc/self/fd')), 'random': random.random(),
    'status': [line for line in (me / 'status').read_text().splitlines()
               if line.startswith(('SigPnd', 'SigBlk', 'SigIgn', 'SigCgt', 'Umask'))],
    'forked': 'devcluster.demo.kinship' in sys.modules,
}, open(sys.argv[1] + '.new', 'w'))
os.rename(sys.argv[1] + '.new', sys.argv[1])
print('written', file=sys.stderr)
signal.pause()
"""


@dataclass
class Run:
    """A supervisor with a fork server, and its lines."""

    folder: Path
    supervisor: Supervisor
    forks: ForkServer | None
    lines: list[str] = field(default_factory=list)

    def start(self, name: str, **environment: str) -> None:
        command = [sys.executable, str(self.folder / "report.py"), str(self.folder / name), "--x"]
        self.supervisor.start(Process(name, command, environment))

    async def report(self, name: str) -> dict[str, Any]:
        """Return what the process wrote about itself, and forget it."""
        path = self.folder / name
        await eventually(path.exists)
        found: dict[str, Any] = json.loads(path.read_text())
        path.unlink()
        return found

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)

    def signal(self, name: str, number: signal.Signals) -> None:
        pid = self.supervisor.pid(name)
        assert pid is not None, f"{name} does not run"
        os.kill(pid, number)


@asynccontextmanager
async def running(folder: Path, *, forks: bool = True) -> AsyncIterator[Run]:
    (folder / "report.py").write_text(REPORT)
    server = ForkServer() if forks else None
    lines: list[str] = []
    run = Run(folder, Supervisor(output=lines.append, forks=server), server, lines)
    if server is not None:
        run.supervisor.start(server.process())
    try:
        yield run
    finally:
        await run.supervisor.stop()
        if server is not None:
            server.close()


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def is_running(pid: int) -> bool:
    return state_of(pid) not in {"", "Z", "X"}


@dataclass
class Seen:
    """Reports of processes about themselves, and the supervisor's lines."""

    forked: dict[str, Any]
    executed: dict[str, Any]
    other: dict[str, Any]
    again: dict[str, Any]
    lines: list[str]
    left: list[int]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """One server for all of this: it imports for a second."""
    return asyncio.run(watch(tmp_path_factory.mktemp("forks")))


async def watch(folder: Path) -> Seen:
    async with running(folder, forks=False) as run:
        run.start("a", OWN="a", ONLY_a="1")
        executed = await run.report("a")
    async with running(folder) as run:
        run.start("a", OWN="a", ONLY_a="1")
        run.start("b", OWN="b")
        run.supervisor.start(Process("m", [sys.executable, "-m", "platform", "--terse"]))
        first, other = await run.report("a"), await run.report("b")
        await eventually(lambda: any("m           | ended with" in line for line in run.lines))
        os.kill(first["pid"], signal.SIGSTOP)
        await eventually(lambda: state_of(first["pid"]) == "T")
        assert run.supervisor.pid("a") == first["pid"]  # stopped is not ended
        run.kill("a")
        again = await run.report("a")
    everyone = (first["pid"], other["pid"], again["pid"])
    left = [pid for pid in everyone if Path(f"/proc/{pid}").exists()]
    return Seen(first, executed, other, again, run.lines, left)


def test_a_forked_process_is_as_one_that_was_executed(seen: Seen) -> None:
    forked, executed = deepcopy(seen.forked), deepcopy(seen.executed)
    assert (forked.pop("forked"), executed.pop("forked")) == (True, False)
    assert forked["parent"] == os.getpid()
    assert forked["session"] == forked["group"] == forked["pid"]
    assert forked["environment"]["OWN"] == "a"
    assert sorted(forked.pop("kernel")) == sorted(executed.pop("kernel"))
    for one in (forked, executed):
        for name in ("pid", "session", "group", "random"):
            del one[name]
        # It is set by an interpreter that starts in the C locale.
        one["environment"].pop("LC_CTYPE", None)
    assert forked == executed


def test_each_has_its_own_environment_command_and_randomness(seen: Seen) -> None:
    a, b = seen.forked, seen.other
    assert (a["environment"]["OWN"], b["environment"]["OWN"]) == ("a", "b")
    assert "ONLY_a" not in b["environment"]
    assert (Path(a["command"][2]).name, Path(b["command"][2]).name) == ("a", "b")
    assert a["random"] != b["random"]
    assert not any("ROOM" in each for each in b["kernel"])


def test_a_module_runs_as_main(seen: Seen) -> None:
    assert any(line.startswith("m           | Linux") for line in seen.lines)
    assert any("m           | ended with exit code 0; starts" in line for line in seen.lines)


def test_a_killed_fork_starts_again_and_nothing_is_left(seen: Seen) -> None:
    assert seen.again["forked"]
    assert seen.again["pid"] != seen.forked["pid"]
    assert any("a           | ended with signal SIGKILL; starts" in line for line in seen.lines)
    assert seen.left == []


async def test_a_killed_fork_server_takes_nobody_with_it_and_starts_again(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        run.start("a")
        first = await run.report("a")
        server = run.supervisor.pid("fork-server")
        run.kill("fork-server")
        await eventually(lambda: any("fork-server | ended with" in line for line in run.lines))
        run.start("b")  # before there is another server
        assert not (await run.report("b"))["forked"]
        assert is_running(first["pid"])
        assert run.supervisor.pid("a") == first["pid"]
        await eventually(lambda: run.supervisor.pid("fork-server") not in {None, server})
        run.start("c")
        assert (await run.report("c"))["forked"]


async def test_a_request_that_the_server_does_not_live_to_answer_is_an_exec(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await eventually(lambda: run.supervisor.pid("fork-server") is not None)
        run.signal("fork-server", signal.SIGSTOP)
        run.start("a")
        assert run.forks is not None
        await eventually(run.forks._turn.locked)
        run.kill("fork-server")
        assert not (await run.report("a"))["forked"]


async def test_an_answer_that_comes_too_late_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as run:
        await eventually(lambda: run.supervisor.pid("fork-server") is not None)
        run.signal("fork-server", signal.SIGSTOP)
        with monkeypatch.context() as impatient:
            impatient.setattr("devcluster.demo.forks._ANSWER_SECONDS", 0.1)
            run.start("a")
            first = await run.report("a")
        assert not first["forked"]
        run.signal("fork-server", signal.SIGCONT)
        clean = "fork-server | ended with exit code 0"
        await eventually(lambda: any(clean in line for line in run.lines))
        run.start("b")
        second = await run.report("b")
        pids = run.supervisor.pid("a"), run.supervisor.pid("b")
        assert pids == (first["pid"], second["pid"])
        assert not (tmp_path / "a").exists()  # no second one was forked


async def test_a_fork_that_cannot_be_watched_never_begins_and_is_an_exec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = []

    def refuse(pid: int) -> int:
        forked.append(pid)
        # A fork that has begun writes its report before an interpreter has started.
        subprocess.run([sys.executable, "-c", ""], check=True)
        assert not (tmp_path / "a").exists()
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr("os.pidfd_open", refuse)
    async with running(tmp_path) as run:
        run.start("a")
        report = await run.report("a")
        assert not report["forked"]
        assert forked != [report["pid"]]
        assert not is_running(forked[0])


async def test_forks_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text(REPORT)
    code = (
        "import asyncio, sys\n"
        "from devcluster.demo.forks import ForkServer\n"
        "from devcluster.demo.supervisor import Process, Supervisor\n"
        "async def main():\n"
        "    forks = ForkServer()\n"
        "    supervisor = Supervisor(forks=forks)\n"
        "    supervisor.start(forks.process())\n"
        "    for name in sys.argv[2:]:\n"
        "        supervisor.start(Process(name, [sys.executable, sys.argv[1], name]))\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())"
    )
    names = [str(tmp_path / name) for name in "ab"]
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "report.py"), *names
    )
    await eventually(lambda: all(Path(name).exists() for name in names))
    reports = [json.loads(Path(name).read_text()) for name in names]
    assert [each["parent"] for each in reports] == [parent.pid] * 2
    parent.kill()
    await parent.wait()
    await eventually(lambda: not any(is_running(each["pid"]) for each in reports))


def test_a_fork_whose_demo_has_ended_meanwhile_does_not_begin() -> None:
    """The kernel tells it only of an end that comes after it has asked."""
    gone = 1 << 22  # no process id of Linux
    code = f"from devcluster.demo.forkserver import _become; _become(b'[[], {{}}]', 1, {gone})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 1


def test_what_is_loaded_before_a_fork_reads_no_setting_and_opens_nothing() -> None:
    code = (
        "import gc, os, sys, threading\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "from devcluster.demo.forkserver import FIRST, REST, preload\n"
        "preload(FIRST + REST)\n"
        "from django.conf import settings\n"
        "from prometheus_client import REGISTRY\n"
        "read = [name for name in sys.modules if name.startswith(('ipuhub.variables',"
        " 'ipuhub.settings', 'ipuhub.celery', 'rest_framework'))]\n"
        "own = [name for name in REGISTRY._names_to_collectors"
        " if not name.startswith(('python_', 'process_'))]\n"
        "tasks = len(os.listdir('/proc/self/task'))\n"
        "opened = len(os.listdir('/proc/self/fd')) - before\n"
        "print(read, own, settings.configured, tasks, opened, gc.get_freeze_count() > 10_000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[] [] False 1 0 True"
