"""Debian's Open MPI through the generated script, hostfile and environment."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.builders.ipujobs import ipujob
from tests.fakes.waiting import wait_until
from tests.integration.mpi.mpilab import lab_of

if TYPE_CHECKING:
    from tests.integration.mpi.mpilab import MpiLab

RANK = (
    "echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK"
    " $HOSTNAME $IPUOF_VIPU_API_PARTITION_ID"
)
NAMES = {
    "short": "a",
    "with dots": "team-a.b7.9",
    "like an address": "10.0.0.1",
    "ends like a worker": "a-worker-0",
    "just short enough for mpirun": "j" * 40,
    "just too long for mpirun": "j" * 41,
    "63 characters": "n" * 63,
    "63 characters with dots": "a.1." + "n" * 59,
    "63 digits": "7" * 63,
}


def ranks_of(lab: MpiLab, slots: int) -> list[str]:
    """Return the output of a full run's ranks, if each ran where it belongs."""
    size = slots * len(lab.workers)
    return [
        f"{rank} {size} {rank % slots} {lab.worker_names[rank // slots]} p-0"
        for rank in range(size)
    ]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_each_rank_runs_in_its_worker(name: str, tmp_path: Path) -> None:
    lab = lab_of(ipujob(name).workers(3).with_spec(modelReplicasPerWorker="2"), tmp_path)
    done = lab.mpirun("sh", "-c", RANK)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines(), key=lambda line: int(line.split()[0])) == ranks_of(
        lab, 2
    )
    assert sorted(lab.entered) == lab.worker_names


@pytest.mark.parametrize(
    ("name", "node"),
    [("a", "node-0"), ("n" * 63, "worker-0"), ("n" * 63, "node-0.cluster.example")],
    ids=["short name", "long name on a node called worker-0", "node with a domain"],
)
def test_pods_on_the_network_of_one_node_are_told_apart(
    name: str, node: str, tmp_path: Path
) -> None:
    lab = lab_of(ipujob(name).workers(2), tmp_path, node=node)
    done = lab.mpirun("sh", "-c", RANK)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ranks_of(lab, 2)


def test_more_workers_than_digits_of_one(tmp_path: Path) -> None:
    lab = lab_of(ipujob("many").workers(12).with_spec(modelReplicasPerWorker="1"), tmp_path)
    done = lab.mpirun("sh", "-c", RANK)
    assert done.returncode == 0, done.stderr
    ranks = sorted(done.stdout.splitlines(), key=lambda line: int(line.split()[0]))
    assert ranks == ranks_of(lab, 1)


def test_fewer_processes_than_slots_fill_the_first_workers(tmp_path: Path) -> None:
    lab = lab_of(ipujob("few").workers(2).with_spec(modelReplicasPerWorker="2"), tmp_path)
    done = lab.mpirun("-np", "3", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $HOSTNAME")
    ranks = sorted(done.stdout.splitlines())
    assert ranks == ["0 few-worker-0", "1 few-worker-0", "2 few-worker-1"]


def test_more_processes_than_slots_are_refused(tmp_path: Path) -> None:
    done = lab_of(ipujob("much"), tmp_path).mpirun("-np", "5", "true")
    assert done.returncode == 1
    assert "not enough slots available" in done.stderr


@pytest.mark.parametrize("code", [1, 3, 42, 137])
def test_the_exit_code_of_a_rank_is_that_of_mpirun(code: int, tmp_path: Path) -> None:
    lab = lab_of(ipujob("fails").workers(2), tmp_path)
    script = f'[ "$OMPI_COMM_WORLD_RANK" = 3 ] && exit {code}; exit 0'
    done = lab.mpirun("sh", "-c", script)
    assert done.returncode == code
    assert "fails-worker-1" in done.stderr or "exit code" in done.stderr


def test_a_program_that_is_not_there_fails_the_run(tmp_path: Path) -> None:
    done = lab_of(ipujob("nothing").workers(2), tmp_path).mpirun("no-such-program")
    assert done.returncode != 0
    assert "no-such-program" in done.stderr


def test_a_worker_that_cannot_be_entered_fails_the_run(tmp_path: Path) -> None:
    lab = lab_of(ipujob("gone").workers(2), tmp_path)
    (tmp_path / "gone-worker-1" / "enter").unlink()
    done = lab.mpirun("sh", "-c", RANK)
    assert done.returncode != 0
    assert "no such pod" in done.stderr


ODD = ("two words", "it's", 'say "hi"', "$HOME", "`id`", "$(id)", "*", "a\\b", "a;b&c|d<e>f", "é#!")


def test_arguments_reach_the_ranks_as_they_are(tmp_path: Path) -> None:
    lab = lab_of(ipujob("odd").workers(2).with_spec(modelReplicasPerWorker="1"), tmp_path)
    script = 'for one in "$@"; do printf "%s<%s>\\n" $OMPI_COMM_WORLD_RANK "$one"; done'
    done = lab.mpirun("sh", "-c", script, "sh", *ODD)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"{rank}<")]
        assert lines == [f"{rank}<{one}>" for one in ODD]


def test_variables_and_parameters_reach_the_workers_as_they_are(tmp_path: Path) -> None:
    lab = lab_of(ipujob("vars").workers(2).with_spec(modelReplicasPerWorker="1"), tmp_path)
    value = 'two words, it\'s "$HOME"'
    done = lab.mpirun(
        "-x",
        f"TOLD={value}",
        "--mca",
        "btl_tcp_if_include",
        "10.0.0.0/8,eth0",
        "sh",
        "-c",
        'echo "$TOLD $OMPI_MCA_btl_tcp_if_include"',
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{value} 10.0.0.0/8,eth0"] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_their_mpirun(number: int, tmp_path: Path) -> None:
    lab = lab_of(ipujob("ends").workers(2).with_spec(modelReplicasPerWorker="1"), tmp_path)
    script = f"echo $$ > {tmp_path}/pid-$OMPI_COMM_WORLD_RANK; exec sleep 300"
    with lab.start("sh", "-c", script) as process:
        files = [tmp_path / "pid-0", tmp_path / "pid-1"]
        wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files))
        pids = [int(file.read_text()) for file in files]
        os.kill(process.pid, number)
        process.communicate(timeout=90)
        assert process.returncode != 0
    wait_until(lambda: not any(runs(pid) for pid in pids))


def runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
