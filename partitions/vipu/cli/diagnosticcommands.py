"""io: `vipu-admin diagnostics`: start tests, follow their progress, show results."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from partitions.vipu.agent.machine import MachineTest
from partitions.vipu.agent.wire import TEST_NUMBERS
from partitions.vipu.cli.output import Table, as_data, as_time, as_word
from partitions.vipu.protos import vipu_diagnostics_pb2 as pb

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from partitions.vipu.client import VipuClient

POLL_SECONDS: Final = 0.2
_BAR: Final = 30
_HEADS: Final = ("Diagnostic", "Test", "State", "Done", "Failed", "Skipped", "Started")
_KINDS: Final = {number: kind.value for kind, number in TEST_NUMBERS.items()}


async def run_test(client: VipuClient, options: argparse.Namespace) -> Table:
    """Start a test, show its progress until it ends, and its results. Raise VipuError."""
    kind = TEST_NUMBERS[MachineTest(options.entity)]
    question = pb.StartDiagnosticRequest(kind=kind, agent_ids=options.agents)
    diagnostic: pb.Diagnostic = await client.ask("StartDiagnostic", question)
    if options.no_wait:
        return replace(_list([diagnostic]), is_last=True)
    return _results(await _follow(client, diagnostic.id))


async def _follow(client: VipuClient, diagnostic_id: str) -> pb.Diagnostic:
    """Show the progress of a test until it ends."""
    request = pb.GetDiagnosticRequest(diagnostic_id=diagnostic_id)
    while True:
        diagnostic: pb.Diagnostic = await client.ask("GetDiagnostic", request)
        running = diagnostic.state == pb.DIAGNOSTIC_STATE_RUNNING
        _show(diagnostic, is_last=not running)
        if not running:
            return diagnostic
        await asyncio.sleep(POLL_SECONDS)


async def list_tests(client: VipuClient, options: argparse.Namespace) -> Table:
    """The last tests."""
    del options
    return _list((await client.ask("ListDiagnostics", pb.ListDiagnosticsRequest())).diagnostics)


async def get_test(client: VipuClient, options: argparse.Namespace) -> Table:
    """The results of one test so far, with `--watch` at its end. Raise VipuError."""
    if options.watch:
        return _results(await _follow(client, options.name))
    question = pb.GetDiagnosticRequest(diagnostic_id=options.name)
    return _results(await client.ask("GetDiagnostic", question))


async def cancel_test(client: VipuClient, options: argparse.Namespace) -> None:
    """End a test after the steps that run. Raise VipuError."""
    await client.ask("CancelDiagnostic", pb.CancelDiagnosticRequest(diagnostic_id=options.name))


def bar(done: int, steps: int) -> str:
    """A progress bar."""
    filled = _BAR * done // steps if steps else _BAR
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{steps}"


def _show(diagnostic: pb.Diagnostic, *, is_last: bool) -> None:
    """Draw the progress bar on a terminal; results go elsewhere, so that programs can read them."""
    if sys.stderr.isatty():
        text = f"{diagnostic.id} {bar(diagnostic.done, diagnostic.steps)}"
        sys.stderr.write(f"\r{text}" + ("\n" if is_last else ""))
        sys.stderr.flush()


def _list(found: Any) -> Table:
    rows = [
        (
            test.id,
            _KINDS.get(test.kind, str(test.kind)),
            as_word(pb.DiagnosticState, test.state),
            f"{test.done}/{test.steps}",
            str(test.failed),
            str(test.skipped),
            as_time(test.started_at),
        )
        for test in found
    ]
    return Table(_HEADS, rows, [as_data(test) for test in found])


def _results(diagnostic: pb.Diagnostic) -> Table:
    rows = [
        (
            result.agent_id,
            str(result.ipu) if result.HasField("ipu") else "-",
            as_word(pb.Outcome, result.outcome),
            result.message or "-",
        )
        for result in diagnostic.results
    ]
    is_bad = diagnostic.state in {pb.DIAGNOSTIC_STATE_FAILED, pb.DIAGNOSTIC_STATE_CANCELLED}
    results = Table(("Agent", "IPU", "Result", "Why"), rows, None)
    return replace(
        _list([diagnostic]), data=as_data(diagnostic), is_bad=is_bad, is_last=True, below=results
    )
