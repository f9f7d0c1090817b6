"""`ipuhub-launcher` as the image runs it, one file alone, against the embedded API."""

from __future__ import annotations

import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.ipujob.names import IPUJOBS
from jobs.launcher.main import ACCOUNT
from tests.fakes.launcherlab import ALONE, PROGRAM, stored_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fakes.launcherlab import Job

pytestmark = pytest.mark.embedded_only


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[Job]:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\n" + "# x\n" * 100_000)
    async with stored_job(tmp_path, kubectl, workers=2) as stored:
        yield stored


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def test_it_ends_when_the_workers_are_ready_and_tells_its_progress(job: Job) -> None:
    await job.grant()
    before = cpu_seconds_of_children()
    async with job.running() as process:
        await job.says("0 of 2 workers are ready")
        await job.add_worker(0)
        await job.says("1 of 2 workers are ready; waiting for sample-worker-1 (not there yet)")
        await job.add_worker(1)
        assert await process.wait() == 0
    # 0.1 s where nothing disturbs it: its container has a tenth of a core.
    assert cpu_seconds_of_children() - before < 0.3
    assert job.lines[-1] == "all 2 workers are ready"
    delivered = Path(job.environment["IPUHUB_KUBECTL_FOLDER"]) / "kubectl"
    assert delivered.stat().st_mode & stat.S_IXOTH
    assert delivered.read_bytes() == Path(job.environment["IPUHUB_KUBECTL_BINARY"]).read_bytes()


async def test_it_waits_for_its_rights_which_are_made_while_the_pod_starts(job: Job) -> None:
    await job.add_worker(0)
    await job.add_worker(1)
    async with job.running() as process:
        await job.says("forbidden")
        await job.grant()
        assert await process.wait() == 0
    assert job.lines[-1] == "all 2 workers are ready"


async def test_it_gives_up_with_a_sentence_when_its_time_is_over(job: Job) -> None:
    await job.grant()
    await job.add_worker(0)
    assert await job.ends(IPUHUB_LAUNCHER_WAIT_SECONDS="3") == 1
    assert job.lines[-1].startswith("waited 3 s: 1 of 2 workers are ready; waiting for")


async def test_a_pod_of_an_older_attempt_does_not_start_the_command(job: Job) -> None:
    await job.grant()
    await job.add_worker(0)
    await job.add_worker(1)
    status = {"instances": [{"index": 0, "attempt": 1, "state": "Restarting"}]}
    await job.client.patch(IPUJOBS, "sample", {"status": status}, "default", subresource="status")
    assert await job.ends() == 1
    assert "the job is at attempt 1, this pod belongs to" in job.lines[-1]


async def test_the_command_of_a_job_that_has_gone_is_not_started(job: Job) -> None:
    await job.grant()
    await job.add_worker(0)
    await job.add_worker(1)
    await job.client.delete(IPUJOBS, "sample", "default")
    assert await job.ends() == 1
    assert job.lines[-1] == "not starting the command: the job is gone"


async def test_it_ends_at_once_when_its_pod_is_deleted(job: Job) -> None:
    await job.grant()
    async with job.running() as process:
        await job.says("0 of 2 workers are ready")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"IPUHUB_KUBECTL_BINARY": "", "PATH": "/none"}, "this image contains no kubectl"),
        ({"IPUHUB_KUBECTL_BINARY": "/none/kubectl"}, "cannot put kubectl into "),
        (
            {"IPUHUB_JOB": "", "IPUHUB_JOB_UID": ""},
            "IPUHUB_JOB and IPUHUB_JOB_UID: missing, although the",
        ),
        ({"IPUHUB_WORKERS": "many"}, "IPUHUB_WORKERS is 'many': not a number"),
        ({"IPUHUB_POD_ROOT": "/none"}, f"no service account in {ACCOUNT}"),
        ({"KUBERNETES_SERVICE_HOST": ""}, "KUBERNETES_SERVICE_HOST: missing, although Kubernetes"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    tmp_path: Path, changes: dict[str, str], want: str
) -> None:
    environment = {
        "IPUHUB_NAMESPACE": "default",
        "IPUHUB_JOB": "sample",
        "IPUHUB_JOB_UID": "uid",
        "IPUHUB_KUBECTL_FOLDER": str(tmp_path),
        "IPUHUB_KUBECTL_BINARY": sys.executable,
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    }
    found = subprocess.run(ALONE, env=environment | changes, capture_output=True, check=False)
    assert found.returncode == 1
    assert found.stderr == b""
    assert found.stdout.decode().startswith(f"ipuhub-launcher: {want}")


def test_it_is_one_file_that_loads_no_package_and_nothing_slow() -> None:
    """Its imports are nearly all that it costs."""
    code = f"import sys; sys.path.append({str(PROGRAM.parent)!r}); import main; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-IS", "-c", code], text=True).split())
    slow = {"typing", "dataclasses", "asyncio", "pathlib", "shutil", "subprocess", "http.client"}
    assert not loaded & (slow | {"jobs", "ipuhub", "django", "aiohttp", "yaml", "logging"})
