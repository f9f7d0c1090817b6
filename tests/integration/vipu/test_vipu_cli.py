"""`vipu` against a real vipu-server: its words and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import metadata
from threading import Thread
from typing import TYPE_CHECKING

import pytest
import yaml

from partitions.vipu.cli import admin
from partitions.vipu.cli.completion import commands_of
from partitions.vipu.cli.main import main, make_parser
from partitions.vipu.types import CreateRequest
from tests.fakes.freeport import free_port
from tests.fakes.vipu import let_ipu_fail
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.conftest import Clock

    Start = Callable[..., tuple[VipuServer, int]]
    Said = pytest.CaptureFixture[str]

KEYED = ("--api-user-id", "a", "--api-access-key")
LIST = """\
 Partition | Cluster | ILDs | GW Routing | ILD Routing | Size | GCDs | State
------------------------------------------------------------------------------
 p1        | default | 1    | DEFAULT    | DNC         | 4    | 1    | ACTIVE
 p2        | default | 1    | DEFAULT    | DNC         | 2    | 2    | ACTIVE
------------------------------------------------------------------------------
"""


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture
def running(start_server: Start) -> tuple[VipuServer, int]:
    """A server that answers every call at once, and its port."""
    return start_server(create_latency_seconds=0, reset_latency_seconds=0)


@pytest.fixture
def port(running: tuple[VipuServer, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    """Of the running server; the environment names it."""
    _, port = running
    for name in [name for name in os.environ if name.startswith("VIPU_CLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VIPU_CLI_API_HOST", "127.0.0.1")
    monkeypatch.setenv("VIPU_CLI_API_PORT", str(port))
    return port


def output_of(capsys: Said, *arguments: str) -> str:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    # The server logs in this process, too.
    return "".join(line for line in out.splitlines(keepends=True) if "[info  " not in line)


def test_a_partition_is_made_shown_reset_and_removed_in_the_known_words(
    port: int, running: tuple[VipuServer, int], capsys: Said
) -> None:
    assert output_of(capsys, "create", "partition", "p1", "--size", "4") == (
        "create partition (p1): success.\n"
    )
    output_of(capsys, "create", "partition", "p2", "--size", "2", "--num-gcds", "2")
    assert output_of(capsys, "list", "partitions") == LIST
    assert output_of(capsys, "list", "partition", "--allocation", "default") == LIST
    wide = output_of(capsys, "list", "partitions", "-o", "wide")
    assert "Allocation" in wide.splitlines()[0]
    assert " Operation      | IDLE" in output_of(capsys, "get", "partition", "p2")
    assert output_of(capsys, "reset", "partition", "p2") == "reset partition (p2): success.\n"
    let_ipu_fail(running[0].controller, "p2", "hot")
    assert main(["reset", "partition", "p2"]) == 1
    assert "p2 cannot be reset: ag1: hot" in capsys.readouterr().err
    output_of(capsys, "reset", "partition", "p2", "--relocatable")
    assert output_of(capsys, "list", "partitions") == LIST  # ACTIVE
    assert output_of(capsys, "delete", "partition", "p2", "--force") == (
        "delete partition (p2): success.\n"
    )
    assert output_of(capsys, "remove", "partition", "p1") == "remove partition (p1): success.\n"
    assert output_of(capsys, "list", "partitions").count("\n") == 3


def test_json_and_yaml_have_the_protocol_s_own_names_and_the_same_values(
    port: int, capsys: Said
) -> None:
    output_of(capsys, "create", "partition", "p1", "--size", "2", "--num-gcds", "2")
    listed = json.loads(output_of(capsys, "list", "partitions", "--output", "json"))
    assert listed[0]["partition"]["spec"]["num_gcds"] == 2
    assert len(listed[0]["partition"]["spec"]["ipus"]) == 2
    assert json.loads(output_of(capsys, "--showjson", "list", "partitions")) == listed
    assert yaml.safe_load(output_of(capsys, "list", "partitions", "-o", "yaml")) == listed
    both = json.loads(output_of(capsys, "get", "partition", "p1", "--ipu-configs"))
    one = json.loads(output_of(capsys, "get", "partition", "p1", "--ipuof-configs", "--gcd", "1"))
    assert [len(gcd["devices"]) for gcd in both["gcd_configs"]] == [1, 1]
    assert one["gcd_configs"] == both["gcd_configs"][1:]


def test_allocations_and_attributes_of_ipus_are_listed(port: int, capsys: Said) -> None:
    text = output_of(capsys, "list", "allocations")
    assert text.splitlines()[2] == " default       | ag0 ag1 ag2 ag3 ag4 ag5 ag6 ag7"
    lines = output_of(capsys, "list", "ipu-attrs", "--agent", "ag1").splitlines()
    assert lines[0].split() == ["Agent", "|", "IPU", "|", "Attribute", "|", "Value"]
    assert {line.split("|")[0].strip() for line in lines[2:-1]} == {"ag1"}
    assert any("| board type" in line and line.endswith("M2000") for line in lines)
    version = output_of(capsys, "--server-version")
    assert version.startswith(f"host: 127.0.0.1:{port}\nversion: ")
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"vipu of IPUHub {metadata.version('ipuhub')}\n"


def test_a_controller_that_names_no_allocation_is_said_to_do_so(
    start_server: Start, capsys: Said
) -> None:
    _, port = start_server(published_attributes_only=True)
    assert main(["list", "allocations", "-H", "127.0.0.1", "--api-port", str(port)]) == 1
    assert "does not say to which allocation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["create", "partition", "p1", "--size", "3"], 1, "create partition (p1): failed: "),
        (["create", "partition", "p1", "--size", "64"], 1, "create partition (p1): failed: "),
        (["get", "partition", "none"], 1, "get partition (none): failed: "),
        (["remove", "partition", "none"], 1, "remove partition (none): failed: "),
        (["list", "partitions", "--allocation", "none"], 1, "list partitions: failed: "),
        (["list", "partitions", "--api-port", "0"], 2, "'0' is not a port"),
        (["list", "partitions", "--key", "k"], 2, "need --ca"),
        (["list", "partitions", "--ca", "/none"], 2, "/none cannot be read"),
        (["list", "partitions", "--config", "/none"], 2, "/none cannot be read"),
        ([], 2, "usage: vipu"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_an_exit_code(
    port: int, capsys: Said, arguments: list[str], code: int, words: str
) -> None:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize("size", ["0", "-4", "four", "99999999999"])
def test_a_size_that_is_none_is_wrong_usage(port: int, capsys: Said, size: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["create", "partition", "p1", f"--size={size}"])
    assert ended.value.code == 2


def test_a_controller_that_does_not_answer_is_exit_code_3(port: int, capsys: Said) -> None:
    assert main(["list", "partitions", "--api-port", str(free_port())]) == 3
    assert "Check --api-host, --api-port and the network" in capsys.readouterr().err


def test_create_waits_until_programs_may_use_the_partition(
    start_server: Start, clock: Clock, capsys: Said
) -> None:
    _, port = start_server(create_latency_seconds=5)
    place = ["-H", "127.0.0.1", "--api-port", str(port)]
    assert main(["create", "partition", "soon", "--size", "1", "--no-wait", *place]) == 0
    assert "PENDING" in output_of(capsys, "list", "partitions", *place)
    codes: list[int] = []
    waiting = Thread(
        target=lambda: codes.append(main(["create", "partition", "p", "--size", "1", *place]))
    )
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    clock.forward(6)
    waiting.join(60)
    assert codes == [0]


def test_a_partition_that_does_not_become_active_stays_and_is_said_to(
    start_server: Start, capsys: Said
) -> None:
    server, port = start_server(create_latency_seconds=60)
    place = ["-H", "127.0.0.1", "--api-port", str(port), "--disable-auto-reset"]
    code: list[int] = []
    create = ["create", "partition", "p", "--size", "1", *place]
    waiting = Thread(target=lambda: code.append(main(create)))
    waiting.start()
    wait_until(server.controller.list, "the partition")
    let_ipu_fail(server.controller, "p", "link down")
    waiting.join(60)
    assert code == [1]
    assert "link down. The partition stays and keeps its IPUs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("get", "partition", "p", "--ipu-configs", "--gcd", "-1"), "-1 is not a number of at le"),
        (("get", "partition", "p", "--ipu-configs", "--gcd", "99999999999"), "is not a number of"),
        (("get", "partition", "\udcff"), "vipu: name is not UTF-8 text"),
        (
            ("create", "partition", "p", "--size", "1", "--cluster", "\udcff"),
            "cluster is not UTF-8",
        ),
        (("list", "ipu-attrs", "--agent", "\udcff"), "agent is not UTF-8 text"),
        (("list", "partitions", "-H", "a\n"), "write the name or address alone"),
        (
            ("list", "partitions", *KEYED, "caf\u00e9"),
            "the access key has characters that none has",
        ),
        (("list", "partitions", *KEYED, "k\n"), "the access key has characters that none has"),
    ],
)
def test_what_no_message_can_carry_is_refused_before_it_is_sent(
    port: int, capsys: Said, arguments: tuple[str, ...], want: str
) -> None:
    try:
        code = main(arguments)
    except SystemExit as error:  # of argparse
        code = int(str(error.code))
    err = capsys.readouterr().err
    assert code == 2
    assert want in err
    assert "Traceback" not in err
    assert "caf" not in err


def test_a_user_without_a_home_or_of_a_closed_folder_is_served(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.home", refuse)
        assert "default" in output_of(capsys, "list", "allocations")

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.exists", closed)
    assert main(["list", "allocations"]) == 2
    assert ".vipu.hcl cannot be read: Permission denied" in capsys.readouterr().err


def test_watch_repeats_until_it_is_interrupted(port: int) -> None:
    command = [sys.executable, "-m", "partitions.vipu.cli.main", "list", "partitions", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(6):  # twice three lines
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_what_is_interrupted_before_its_end_is_exit_code_130(
    port: int, start_server: Start, tmp_path: Path
) -> None:
    server, slow = start_server(create_latency_seconds=5, storage=tmp_path / "slow.json")
    command = [sys.executable, "-m", "partitions.vipu.cli.main", "create", "partition", "p1"]
    command += ["--size", "1", "--api-port", str(slow)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: bool(server.controller.list()), "the partition is asked for")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_watch_goes_on_when_the_controller_has_been_away(
    port: int, running: tuple[VipuServer, int], start_server: Start
) -> None:
    command = [sys.executable, "-m", "partitions.vipu.cli.main", "list", "partitions", "--watch"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "Partition" in process.stdout.readline()
        running[0].stop()
        line = process.stderr.readline()
        assert f"127.0.0.1:{port}" in line
        assert "The list above may be out of date; trying again until Ctrl-C" in line
        server, _ = start_server(port=port, create_latency_seconds=0)
        server.controller.create(CreateRequest("back", 4))
        while "back" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_watch_of_a_controller_that_never_answered_ends(port: int) -> None:
    nobody = str(free_port())
    assert main(["list", "partitions", "--watch", "--api-port", nobody]) == 3


@pytest.mark.parametrize(
    ("typed", "want"),
    [
        ("vipu li", "list"),
        ("vipu list ipu-a", "ipu-attrs ipu-attr"),
        ("vipu create partition p1 --num-g", "--num-gcds"),
    ],
)
def test_bash_completes_commands_and_options(capsys: Said, typed: str, want: str) -> None:
    script = output_of(capsys, "completion", "bash")
    words = typed.split()
    line = f"COMP_LINE={typed!r}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _vipu"
    line += "; echo ${COMPREPLY[@]}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == want.split()
    assert "bashcompinit" in output_of(capsys, "completion", "zsh")


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ("--sync-type c2-compatible", "GS2_DEFAULT"),
        ("--sync-type gs2-default", "GS2_DEFAULT"),
        ("--reconfigurable --sync-type c2-compatible", "GS2_DEFAULT"),
        ("--reconfigurable --index --sync-type pod-native-default", "GS2_DEFAULT"),
        ("--reconfigurable --sync-type pod-native-default", ""),
    ],
)
def test_a_reconfigurable_partition_has_one_sync_type_and_index_takes_any(
    port: int, capsys: Said, options: str, want: str
) -> None:
    code = main(["create", "partition", "p", "--size", "2", *options.split()])
    err = capsys.readouterr().err
    assert (code, "leave one of the two out" in err) == (0 if want else 1, not want)
    if want:
        assert want in output_of(capsys, "list", "partitions", "-o", "wide")


@pytest.mark.parametrize("make", [make_parser, admin.make_parser])
def test_the_help_of_every_command_has_an_example(make: Callable[[], ArgumentParser]) -> None:
    without = [path for path, command in commands_of(make()) if not command.epilog]
    assert without == []


def test_the_help_of_a_command_shows_the_examples_about_it(capsys: Said) -> None:
    with pytest.raises(SystemExit):
        main(["get", "partition", "--help"])
    output = capsys.readouterr().out
    assert "  vipu get partition p1 --ipu-configs > ~/.ipuof.conf.d/p1.conf" in output
    assert "vipu create partition" not in output
