"""The hostfile, and the script by which mpirun reaches the workers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from jobs.builders.launcher import hostfile, kubexec_script
from jobs.ipujob.names import host_names
from tests.builders.ipujobs import ipujob
from tests.builders.jobpods import context_of

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.builders.pods import BuildContext


def test_the_hostfile_lists_pod_names_and_slots() -> None:
    context = context_of(ipujob().workers(2).with_spec(modelReplicasPerWorker="3"))
    assert hostfile(context) == "sample-worker-0 slots=3\nsample-worker-1 slots=3\n"


def test_long_pod_names_become_short_hosts_that_the_script_maps_back(tmp_path: Path) -> None:
    name = "a.job-" + "x" * 57
    context = context_of(ipujob(name).workers(2))
    assert host_names(name, 2) == ("ipujob-worker-0", "ipujob-worker-1")
    assert run_script(context, "ipujob-worker-1", tmp_path)[3] == f"{name}-worker-1"


def test_pod_names_up_to_49_characters_are_hosts() -> None:
    assert host_names("j" * 40, 1) == ("j" * 40 + "-worker-0",)
    assert host_names("j" * 41, 1) == ("ipujob-worker-0",)
    assert host_names("j" * 40, 11)[0] == "ipujob-worker-0", "the last worker's name is too long"


def test_the_script_runs_the_command_in_the_workers_main_container(tmp_path: Path) -> None:
    containers = [{"name": "main", "image": "a"}, {"name": "sidecar", "image": "b"}]
    job = ipujob("b.c").with_template(containers=containers)
    arguments = run_script(context_of(job), "b.c-worker-0", tmp_path)
    assert arguments == [
        "exec",
        "--namespace",
        "default",
        "b.c-worker-0",
        "--container",
        "main",
        "--",
        "/bin/sh",
        "-c",
        "echo 'two words'",
    ]


def run_script(context: BuildContext, host: str, folder: Path) -> list[str]:
    """Run the script and return the arguments with which it calls kubectl."""
    kubectl = folder / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    kubectl.chmod(0o755)
    script = folder / "kubexec.sh"
    script.write_text(kubexec_script(context), encoding="utf-8")
    done = subprocess.run(
        ["/bin/sh", str(script), host, "echo 'two words'"],
        env={"IPUHUB_KUBECTL": str(kubectl)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
