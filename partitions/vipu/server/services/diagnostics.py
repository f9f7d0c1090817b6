"""io: tests of machines over the admin API."""

# gRPC calls the methods by the names of the interface.
# ruff: noqa: N802
from __future__ import annotations

from typing import TYPE_CHECKING

from partitions.vipu.agent import wire
from partitions.vipu.protos import vipu_diagnostics_pb2 as pb
from partitions.vipu.protos.vipu_diagnostics_pb2_grpc import DiagnosticsServiceServicer
from partitions.vipu.server.diagnostics import Outcome
from partitions.vipu.server.services.partitions import answering

if TYPE_CHECKING:
    from partitions.vipu.server.diagnostics import Diagnostic, Diagnostics


class DiagnosticsService(DiagnosticsServiceServicer):
    """Start, follow, list and cancel tests."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics

    @answering
    def StartDiagnostic(self, request: pb.StartDiagnosticRequest) -> pb.Diagnostic:
        """Begin a test and answer at once."""
        kind = wire.test_kind_from_message(request.kind)
        return _message(self._diagnostics.start(kind, tuple(request.agent_ids)))

    @answering
    def GetDiagnostic(self, request: pb.GetDiagnosticRequest) -> pb.Diagnostic:
        """Answer with one test and its results so far."""
        return _message(self._diagnostics.get(request.diagnostic_id))

    @answering
    def ListDiagnostics(self, request: pb.ListDiagnosticsRequest) -> pb.ListDiagnosticsReply:
        """Answer with the last tests, the oldest first, without their results."""
        del request
        found = [_message(test) for test in self._diagnostics.list()]
        for message in found:
            message.ClearField("results")
        return pb.ListDiagnosticsReply(diagnostics=found)

    @answering
    def CancelDiagnostic(self, request: pb.CancelDiagnosticRequest) -> pb.CancelDiagnosticReply:
        """End a test after the steps that run."""
        self._diagnostics.cancel(request.diagnostic_id)
        return pb.CancelDiagnosticReply()


def _message(diagnostic: Diagnostic) -> pb.Diagnostic:
    # The state first: results that are added meanwhile are no contradiction.
    state = pb.DiagnosticState.Value(f"DIAGNOSTIC_STATE_{diagnostic.state}")
    results = diagnostic.results
    made = pb.Diagnostic(
        id=diagnostic.id,
        kind=wire.TEST_NUMBERS[diagnostic.kind],
        state=state,
        steps=len(diagnostic.steps),
        done=len(results),
        failed=sum(result.outcome is Outcome.FAILED for result in results),
        skipped=sum(result.outcome is Outcome.SKIPPED for result in results),
        results=[
            pb.Result(
                agent_id=result.step.agent,
                ipu=result.step.ipu,
                outcome=pb.Outcome.Value(f"OUTCOME_{result.outcome}"),
                message=result.message,
            )
            for result in results
        ],
    )
    made.started_at.FromDatetime(diagnostic.started_at)
    if diagnostic.ended_at is not None:
        made.ended_at.FromDatetime(diagnostic.ended_at)
    return made
