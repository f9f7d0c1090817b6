"""Tables of `vipu`: what a newer controller says, and what would steer the terminal."""

from __future__ import annotations

from argparse import Namespace
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from partitions.vipu.cli import diagnosticcommands
from partitions.vipu.cli.commands import list_partitions
from partitions.vipu.cli.output import Table, write
from partitions.vipu.protos import vipu_diagnostics_pb2 as pb_diagnostics
from partitions.vipu.protos import vipu_user_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Newer:
    """A controller with states, routings and fields that this release does not know."""

    async def ask(self, method: str, question: Message) -> Any:
        assert method == "ListPartitions"
        partition = pb.Partition(id="p\x1b[31m")
        partition.MergeFromString(b"\x18\x63" + b"\xa2\x06\x01x")  # ready_state 99, field 100
        partition.spec.ipulink_routing_type = 77  # type: ignore[assignment]
        return pb.ListPartitionsReply(partitions=[partition])


async def test_values_of_a_newer_controller_are_shown_as_numbers() -> None:
    table = await list_partitions(Newer(), Namespace(allocation=None, shown=None))  # type: ignore[arg-type]
    line = write(table, "table").splitlines()[2]
    assert [part.strip() for part in line.split("|")] == [
        "p\ufffd[31m", "-", "-", "DEFAULT", "77", "0", "1", "99",
    ]  # fmt: skip
    assert '"ready_state": 99' in write(table, "json")


class Running:
    """A controller whose test does one step between two questions."""

    done = 0

    async def ask(self, method: str, question: Message) -> pb_diagnostics.Diagnostic:
        assert method == "GetDiagnostic"
        self.done += 1
        state = pb_diagnostics.DIAGNOSTIC_STATE_RUNNING
        if self.done == 3:
            state = pb_diagnostics.DIAGNOSTIC_STATE_PASSED
        return pb_diagnostics.Diagnostic(id="d1", state=state, done=self.done, steps=3)


class Screen(StringIO):
    """A standard error, of a terminal or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_a_bar_shows_the_progress_of_a_test_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(diagnosticcommands, "POLL_SECONDS", 0.0)
    options = Namespace(watch=True, name="d1")
    await diagnosticcommands.get_test(Running(), options)  # type: ignore[arg-type]
    bars = [f"\rd1 [{'#' * 10 * done}{'.' * (30 - 10 * done)}] {done}/3" for done in (1, 2, 3)]
    assert screen.getvalue() == ("".join(bars) + "\n" if is_terminal else "")


def test_an_empty_list_has_its_heads_and_is_an_empty_list_for_programs() -> None:
    table = Table(("A", "B"), [], [], frozenset({"B"}))
    assert write(table, "table") == " A\n---\n---"
    assert write(table, "wide").startswith(" A | B\n")
    assert (write(table, "json"), write(table, "yaml")) == ("[]", "[]")
