"""All publicly known commands and options of the original's programs are accepted.

The lines are from its user guides and from scripts that people have published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partitions.vipu.agent import faultcommand
from partitions.vipu.agent import main as agent
from partitions.vipu.cli import admin, main
from partitions.vipu.cli.completion import SHELLS, commands_of, completion
from partitions.vipu.server import options as server

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

VIPU = [
    "create partition p1 --size 4",
    "create partition p1 --size 4 --allocation alloc-1 --reconfigurable",
    "create partition p1 --size 4 --cluster c1 --num-gcds 2 --gcd-sync-replicas 4",
    "create partition p1 --size 64 --routing ringswnc",
    "create partition p1 --size 4 --routing dnc",
    "create partition p1 --size 4 --routing swnc",
    "create partition p1 --size 4 --routing btnc",
    "create partition p1 --size 4 --reconfigurable --index --sync-type c2-compatible",
    "list partitions",
    "list partition",
    "list partitions --showjson",
    "get partition p1",
    "get partition p1 --ipu-configs",
    "get partition p1 --gcd 0 --ipuof-configs",
    "reset partition p1",
    "remove partition p1",
    "remove partition p1 --force",
    "delete partition p1",
    "list allocations",
    "list ipu-attrs",
    "--server-version",
    "-H 10.1.2.3 list partitions",
    "--api-host 10.1.2.3 --api-port 8090 list partitions",
    "--api-user-id alice --api-access-key k list partitions",
    "--config alice.vipu-cli.hcl list partitions",
]
VIPU_ADMIN = [
    "create agent ag1 --host 10.1.2.1 --port 8080",
    "discover agent",
    "discover agents",
    "get agent ag10",
    "list agents",
    "create cluster c1 --agents a,b --num-ipulinkdomains 2 --topology torus",
    "create cluster c1 --agents a,b --cluster-topology looped",
    "create cluster c1 --topology mesh --agents ag1,ag2",
    "create allocation alloc-1 --cluster c1 --agents ag1",
    "create user alice --allocations alloc-1",
    "create partition p1 --size 4 --cluster c1",
    "create partition p1 --size 4 --allocation alloc-1 --reconfigurable",
    "list partitions",
    "list partition",
    "get partition p1",
    "get partition p1 --gcd 0 --ipuof-configs",
    "--server-version",
    "-H 10.1.2.3 --api-port 8091 list partitions --showjson",
]
SERVER = [
    "--init",
    "--init --secure --default-user-id john",
    "--tls-init",
    "--secure",
    "-a eth0,eth1",
    "--autodiscovery-listen-interfaces eth0",
]
PROGRAMS = [("vipu", main.make_parser, VIPU), ("vipu-admin", admin.make_parser, VIPU_ADMIN)]


@pytest.mark.parametrize(
    ("make", "line"),
    [
        pytest.param(make, line, id=f"{name} {line}")
        for name, make, lines in PROGRAMS
        for line in lines
    ],
)
def test_a_known_command_is_taken(make: Callable[[], argparse.ArgumentParser], line: str) -> None:
    options = make().parse_args(line.split())
    assert options.command is not None or options.server_version


@pytest.mark.parametrize("line", SERVER)
def test_a_known_option_of_the_server_is_taken(line: str) -> None:
    server.parse_options([*line.split(), "--storage", "x.json"], {})


@pytest.mark.parametrize(("name", "make", "lines"), PROGRAMS, ids=[name for name, *_ in PROGRAMS])
def test_each_known_command_has_help_with_an_example_and_is_completed(
    name: str, make: Callable[[], argparse.ArgumentParser], lines: list[str]
) -> None:
    parser = make()
    known = {" ".join(line.split()[:2]) for line in lines if not line.startswith("-")}
    commands = dict(commands_of(parser))
    assert known <= commands.keys()
    aliases = {"list partition", "delete partition", "discover agent"}
    assert [
        each
        for each in sorted(known - aliases)
        if f"{name} {each}" not in (commands[each].epilog or "")
    ] == []
    for shell in SHELLS:
        script = completion(parser, shell)
        assert [each for each in known if f"'{each}'*" not in script] == []


@pytest.mark.parametrize(
    "words", ["vipu-server", "vipu-agent", "vipu-agent fault", "vipu-agent repair"]
)
def test_the_help_of_a_process_ends_with_examples_that_can_be_run(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *command = words.split()
    read = server.parse_options if program == "vipu-server" else agent.parse_options
    if command:
        read = faultcommand._parser().parse_args
    with pytest.raises(SystemExit):
        read([*command, "--help"])
    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    lines = [line.split() for line in examples.splitlines()]
    assert len(lines) >= 2
    for line in lines:
        assert line[: len(command) + 1] == words.split()
        assert read(line[1:])
