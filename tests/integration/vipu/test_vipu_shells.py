"""Completion of `vipu` and `vipu-admin` by the Tab key, in real shells on a terminal."""

from __future__ import annotations

import errno
import os
import pty
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.cli import admin
from partitions.vipu.cli import main as user
from partitions.vipu.cli.completion import completion
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
}
# In place of the commands stand functions that say what they were called with.
SETUP = """
vipu() {{ echo "called: vipu $* end"; }}
vipu-admin() {{ echo "called: vipu-admin $* end"; }}
{loader}
. ./vipu.sh
. ./vipu-admin.sh
echo rea''dy
"""
LOADERS = {"bash": "", "zsh": "autoload -U compinit && compinit -u -D"}
TYPED = [
    ("vipu li\t", "vipu list"),
    ("vipu create pa\tp1 --num-g\t 2", "vipu create partition p1 --num-gcds 2"),
    (
        "vipu -H 10.1.2.3 --api-port 1 remove part\tp1",
        "-H 10.1.2.3 --api-port 1 remove partition p1",
    ),
    ("vipu list partitions --output js\t", "vipu list partitions --output json"),
    ("vipu list partitions -o y\t", "vipu list partitions -o yaml"),
    ("vipu-admin dr\tag\tag3 --forc\t", "vipu-admin drain agent ag3 --force"),
    ("vipu-admin create cluster c1 --topology me\t", "create cluster c1 --topology mesh"),
    ("vipu-admin completion z\t", "vipu-admin completion zsh"),
]
# zsh takes brackets without quotes for a pattern.
OF_SHELL = {
    "bash": [
        ("vipu -H [::1]:8090 create pa\tp1", "-H [::1]:8090 create partition p1"),
        ("vipu -H [::1]:8090 list partitions --output=js\t", "list partitions --output=json"),
        ("vipu-admin -H pod001:8090 --api-port=1 dr\tag\ta:3 --forc\t", "drain agent a:3 --force"),
    ],
    "zsh": [("vipu -H '[::1]:8090' create pa\tp1", "-H [::1]:8090 create partition p1")],
}


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, shell: str, folder: Path) -> None:
        if shutil.which(shell) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shell)
        self.text = ""
        self._terminal, theirs = pty.openpty()
        os.set_blocking(self._terminal, False)
        environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "HISTFILE": ""}
        self._process = subprocess.Popen(
            SHELLS[shell],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def says(self, text: str) -> bool:
        try:
            while read := os.read(self._terminal, 65536):
                self.text += read.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return text in self.text

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[[str], Terminal]]:
    """terminal(shell) -> that shell, with the completion of both commands."""
    for program in (user, admin):
        parser = program.make_parser()
        for shell in SHELLS:
            script = completion(parser, shell)
            (tmp_path / shell).mkdir(exist_ok=True)
            (tmp_path / shell / f"{parser.prog}.sh").write_text(script)
    begun: list[Terminal] = []

    def begin(shell: str) -> Terminal:
        made = Terminal(shell, tmp_path / shell)
        begun.append(made)
        (tmp_path / shell / "setup").write_text(SETUP.format(loader=LOADERS[shell]))
        made.type(". ./setup\n")
        wait_until(lambda: made.says("ready"), f"{shell} is ready")
        return made

    yield begin
    for each in begun:
        each.end()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tab_key_completes_commands_options_and_their_values(
    terminal: Callable[[str], Terminal], shell: str
) -> None:
    session = terminal(shell)
    for typed, want in (*TYPED, *OF_SHELL[shell]):
        session.type(f"{typed}\n")
        wait_until(lambda want=want: session.says(f"{want} end"), f"{typed!r} in: {session.text!r}")  # type: ignore[misc]
