"""The README's tour: a newcomer with `make demo` and `kubectl`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.running_demo import EXAMPLES, ROOT
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.running_demo import RunningDemo


TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+Z")


def test_the_sample_job_runs_on_a_partition_and_gives_it_back(demo: RunningDemo) -> None:
    applied = demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    assert applied == "ipujob.graphcore.ai/ipujob-sample created\n"
    wait_until(lambda: demo.status("ipujob-sample") == "Running", "Running")

    table = demo.kubectl("get", "ipujobs").splitlines()
    assert table[0].split()[:2] == ["NAME", "STATUS"]
    assert table[1].split()[:2] == ["ipujob-sample", "Running"]
    pods = demo.kubectl("get", "pods", "--no-headers").splitlines()
    assert [pod.split()[:3] for pod in pods] == [
        ["ipujob-sample-launcher", "1/1", "Running"],
        ["ipujob-sample-worker-0", "1/1", "Running"],
    ]
    # The tracker is text: a person reads job, partition and phase in it.
    of_tracker = ("-n", "ipuhub-system", "-l", "ipuhub.io/tracker", "-o", "yaml")
    tracker = demo.kubectl("get", "cm", *of_tracker)
    held = [line for line in tracker.splitlines() if '"phase":"active"' in line]
    assert len(held) == 1
    assert '"namespace":"default","name":"ipujob-sample",' in held[0]
    assert '"id":"p-ipujob-sample-' in held[0]
    assert demo.http("/stats") == (
        200,
        '{"default":{"used":4,"available":28},"total":{"used":4,"available":28}}',
    )
    assert demo.query(2) == '{"available":true,"numOfPartitions":14,"message":""}'
    never = json.loads(demo.query(64))
    assert (never["available"], never["numOfPartitions"]) == (True, 0)
    assert "never fit" in never["message"]  # the demo has 32 IPUs

    demo.kubectl("delete", "ipujob", "ipujob-sample")
    assert demo.kubectl("get", "pods", "-o", "name") == ""
    assert demo.stats()["total"] == {"used": 0, "available": 32}


def test_describe_prints_every_line_of_the_documented_spec_and_status(demo: RunningDemo) -> None:
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    wait_until(lambda: demo.status("ipujob-sample") == "Running", "Running")
    described = demo.kubectl("describe", "ipujob", "ipujob-sample")
    golden = (ROOT / "tests/golden/jobs/describe.txt").read_text()
    lines = iter(described.splitlines())
    for wanted in golden.splitlines():
        words = [r"\S+Z" if TIME.fullmatch(word) else re.escape(word) for word in wanted.split()]
        assert any(re.fullmatch(r"\s*" + r"\s+".join(words), line) for line in lines), wanted


@pytest.mark.parametrize(
    ("example", "job", "pods"),
    [
        (
            "interactive-job.yaml",
            "interactive-sample-job",
            {"interactive-sample-job-launcher", "interactive-sample-job-worker-0"},
        ),
        (
            "single-gcd-sample-nfs.yaml",
            "ipujob-sample",
            {"ipujob-sample-launcher", "ipujob-sample-worker-0"},
        ),
        ("training-1x.yaml", None, None),
        ("inference-1x.yaml", None, None),
    ],
)
def test_each_example_runs(
    demo: RunningDemo, example: str, job: str | None, pods: set[str] | None
) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / example).read_text()))
    name = next(d["metadata"]["name"] for d in documents if d and d["kind"] == "IPUJob")
    assert job in {None, name}
    applied = demo.try_kubectl("apply", "-f", str(EXAMPLES / example))
    assert (applied.returncode, applied.stderr) == (0, "")  # not even a warning
    try:
        wait_until(lambda: demo.status(name) == "Running", f"{name} Running")
        listed = demo.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split()
        assert pods is None or set(listed) == pods
        if "launcher" not in next(d for d in documents if d and d["kind"] == "IPUJob")["spec"]:
            assert name == "interactive-sample-job" or not any("launcher" in p for p in listed)
    finally:
        demo.kubectl("delete", "-f", str(EXAMPLES / example), "--timeout=120s")


def with_outcome(example: str, name: str, *, seconds: int, code: int = 0) -> str:
    """Return the example's job under another name, ending after `seconds` with `code`."""
    manifest = yaml.safe_load((EXAMPLES / example).read_text())
    manifest["metadata"] = {
        "name": name,
        "annotations": {"sim/runtime-seconds": str(seconds), "sim/exit-code": str(code)},
    }
    return json.dumps(manifest)


@pytest.mark.parametrize(("code", "want"), [(0, "Completed"), (3, "Failed")])
def test_a_finished_job_ends_its_workers_and_frees_its_ipus(
    demo: RunningDemo, code: int, want: str
) -> None:
    name = f"ends-{code}"
    manifest = with_outcome("single-gcd-sample.yaml", name, seconds=2, code=code)
    demo.kubectl("apply", "-f", "-", stdin=manifest)
    wait_until(lambda: demo.status(name) == want, want)
    wait_until(lambda: demo.stats()["total"]["used"] == 0, "IPUs free")

    def worker_ended() -> str:
        phase = demo.kubectl("get", "pod", f"{name}-worker-0", "-o", "jsonpath={.status.phase}")
        return phase if phase in {"Succeeded", "Failed"} else ""

    # The launcher alone failed: a worker that only slept is no failed pod for an alert to count.
    assert wait_until(worker_ended, "the sleeping worker ended") == "Succeeded"
    wait_until(
        lambda: demo.job(name)["status"]["workersStatus"].get("active", 0) == 0, "none active"
    )
    if code:
        assert str(code) in demo.job(name)["status"]["lastMessage"]


def test_an_ipu_that_breaks_on_command_is_what_its_job_names_as_the_cause(
    demo: RunningDemo,
) -> None:
    manifest = with_outcome("single-gcd-sample.yaml", "on-a-broken-ipu", seconds=600, code=0)
    demo.kubectl("apply", "-f", "-", stdin=manifest)
    wait_until(lambda: demo.status("on-a-broken-ipu") == "Running", "Running")
    try:
        # An empty fleet gives its first machine.
        agent(demo, "fault", "ipu-error", "--ipu", "2")
        wait_until(lambda: demo.status("on-a-broken-ipu") == "Failed", "Failed")
        assert "IPU 2 has a memory error" in demo.kubectl("describe", "ipujob", "on-a-broken-ipu")
    finally:
        agent(demo, "repair")
    demo.kubectl("delete", "ipujob", "on-a-broken-ipu")
    wait_until(lambda: demo.stats()["total"] == {"used": 0, "available": 32}, "IPUs free")


def agent(demo: RunningDemo, *arguments: str) -> None:
    port = str(demo.ports["V-IPU agents"])
    command = [sys.executable, "-m", "partitions.vipu.agent.main", *arguments, "--api-port", port]
    subprocess.run(command, check=True, cwd=ROOT, timeout=60)
