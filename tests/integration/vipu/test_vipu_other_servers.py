"""Our commands with older and newer controllers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from partitions.vipu.cli import admin, main
from partitions.vipu.cli.completion import commands_of
from partitions.vipu.protos import vipu_admin_pb2 as admin_pb
from partitions.vipu.protos import vipu_diagnostics_pb2 as diagnostics_pb
from partitions.vipu.protos import vipu_user_pb2 as pb

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    Serve = Callable[[dict[str, bytes]], None]
    Said = pytest.CaptureFixture[str]

USER, ADMIN = "virmgrpc.UserService", "ipuhub.vipu.admin.v1.AdminService"
DIAGNOSTICS = "ipuhub.vipu.diagnostics.v1.DiagnosticsService"
UNKNOWN = b"\xf8\xff\xff\xff\x0f\x07"
"""A field with the largest number, which no release has."""


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """serve({method: bytes}) -> a server that answers these alone; the environment names it."""
    server = grpc.server(ThreadPoolExecutor(2))

    def start(answers: dict[str, bytes]) -> None:
        class Handler(grpc.GenericRpcHandler):
            def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
                answer = answers.get(call.method.removeprefix("/"))
                if answer is None:
                    return None
                return grpc.unary_unary_rpc_method_handler(lambda _, __: answer)

        server.add_generic_rpc_handlers((Handler(),))
        port = str(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        monkeypatch.setenv("VIPU_CLI_API_HOST", "127.0.0.1")
        monkeypatch.setenv("VIPU_CLI_API_PORT", port)
        monkeypatch.setenv("VIPU_CLI_ADMIN_PORT", port)

    yield start
    server.stop(None)


def lines(parser: argparse.ArgumentParser) -> list[list[str]]:
    """Each command with the arguments that it cannot do without."""
    return [
        [*path.split(), *_needed(command)]
        for path, command in commands_of(parser)
        if command.get_default("command") is not None
    ]


def _needed(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.option_strings and action.required:
            yield action.option_strings[0]
        if action.required:
            yield "1"


@pytest.mark.parametrize("line", lines(admin.make_parser()), ids=" ".join)
def test_a_controller_without_our_admin_api_is_said_to_be_one(
    serve: Serve, capsys: Said, line: list[str]
) -> None:
    serve({f"{USER}/ListPartitions": pb.ListPartitionsReply().SerializeToString()})
    assert admin.main(line) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(" ".join(line[:2]))
    assert "The server is older, or this is the port of its other API" in err
    assert len(err.splitlines()) == 1


def test_states_and_fields_of_a_newer_controller_are_shown_as_they_are(
    serve: Serve, capsys: Said
) -> None:
    partition = pb.Partition(id="p1", ready_state=99)  # type: ignore[arg-type]
    partition.spec.gw_routing_type = 77  # type: ignore[assignment]
    status = pb.PartitionStatus(partition_id="p1", ready_state=99, operation_state=88)  # type: ignore[arg-type]
    serve(
        {
            f"{USER}/ListPartitions": pb.ListPartitionsReply(
                partitions=[partition]
            ).SerializeToString()
            + UNKNOWN,
            f"{USER}/GetPartitionStatus": pb.GetPartitionStatusReply(
                status=status
            ).SerializeToString()
            + UNKNOWN,
        }
    )
    assert main.main(["list", "partitions"]) == 0
    row = capsys.readouterr().out.splitlines()[2]
    assert [each.strip() for each in row.split("|")][3::4] == ["77", "99"]
    assert main.main(["get", "partition", "p1"]) == 0
    assert "88" in capsys.readouterr().out


def test_a_newer_test_of_machines_ends_the_watch_in_a_state_nobody_here_knows(
    serve: Serve, capsys: Said
) -> None:
    one = diagnostics_pb.Diagnostic(id="d1", kind=77, state=99, steps=1, done=1)  # type: ignore[arg-type]
    one.results.add(agent_id="ag0", outcome=66)  # type: ignore[arg-type]
    agents = admin_pb.ListAgentsReply(agents=[admin_pb.Agent(id="ag0")])
    listed = diagnostics_pb.ListDiagnosticsReply(diagnostics=[one])
    serve(
        {
            f"{DIAGNOSTICS}/GetDiagnostic": one.SerializeToString() + UNKNOWN,
            f"{DIAGNOSTICS}/ListDiagnostics": listed.SerializeToString() + UNKNOWN,
            f"{ADMIN}/ListAgents": agents.SerializeToString() + UNKNOWN,
        }
    )
    assert admin.main(["diagnostics", "get", "d1", "--watch"]) == 0
    assert "66" in capsys.readouterr().out
    assert admin.main(["diagnostics", "list"]) == 0
    assert "77" in capsys.readouterr().out
    assert admin.main(["list", "agents", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == "ag0"
