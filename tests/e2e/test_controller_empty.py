"""vipu-server dies while jobs run on its partitions, and starts again without its state file."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.e2e.administrator import api_reader, describe_job, submit_job, vipu_admin
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.running_demo import RunningDemo

STATE_FILE = "vipu-server.json"


def restart_empty(demo: RunningDemo) -> None:
    """The demo restarts the killed processes."""
    died = demo.pid_of("partitions.vipu.server.main")
    os.kill(died, signal.SIGSTOP)  # it writes nothing more
    (demo.directory / STATE_FILE).unlink()
    os.kill(died, signal.SIGKILL)
    wait_until(
        lambda: demo.find_pid("partitions.vipu.server.main") not in {None, died}, "another one"
    )


def tracked(demo: RunningDemo) -> dict[str, list[dict[str, Any]]]:
    """The tracker's entries that hold something, by job."""
    label = "ipuhub.io/tracker"
    maps = json.loads(demo.kubectl("get", "cm", "-n", "ipuhub-system", "-l", label, "-o", "json"))
    found: dict[str, list[dict[str, Any]]] = {}
    for data in (each.get("data") or {} for each in maps["items"]):
        for entry in map(json.loads, data.values()):
            if entry["phase"] != "released":
                found.setdefault(entry["name"], []).append(entry)
    return found


def test_a_controller_that_restarts_empty_costs_jobs_an_attempt_and_nobody_an_ipu(
    demo: RunningDemo,
) -> None:
    api = api_reader(demo)
    demo.wait_until_recording()
    submit_job(demo, "ends", 2)
    submit_job(demo, "comes-back", 4, restartPolicy={"type": "OnFailure"})
    for name in ("ends", "comes-back"):
        wait_until(lambda name=name: demo.status(name) == "Running", f"{name} Running")  # type: ignore[misc]
    first = demo.job("comes-back")["status"]["partitions"][0]["id"]
    restart_empty(demo)

    # The jobs are told, in words, and one of them begins again.
    wait_until(lambda: demo.status("ends") == "Failed", "it failed")
    description = describe_job(demo, "ends")
    assert "no longer knows partition p-ends-default-0" in description
    assert "PartitionLost" in description

    def is_back() -> bool:
        status = demo.job("comes-back")["status"]
        return status.get("launcherStatus") == "Running" and status.get("restartCount") == 1

    wait_until(is_back, "the other runs again")

    # One partition of one job: on the controller, on its machines, in the tracker, in all numbers.
    partition = demo.job("comes-back")["status"]["partitions"][0]["id"]
    listed = json.loads(vipu_admin(demo, "list", "partitions", "-o", "json"))
    assert [(each["id"], each["size"]) for each in listed] == [(partition, 4)]

    def held_ipus() -> int:
        agents = json.loads(vipu_admin(demo, "list", "agents", "-o", "json"))
        return sum(each["held_ipus"] for each in agents)

    wait_until(lambda: held_ipus() == 4, "the machines have freed the rest")
    wait_until(lambda: list(tracked(demo)) == ["comes-back"], "the tracker has forgotten the rest")
    (entry,) = tracked(demo)["comes-back"]
    assert (entry["id"], entry["phase"], entry["attempt"]) == (partition, "active", 1)
    free = {"used": 4, "available": 28}
    wait_until(lambda: demo.stats()["total"] == free, "the proxy has seen that they are free")
    lost = ("lost", "replaced", "untracked", "late")

    def drift() -> list[int]:
        found = json.loads(demo.http("/stats?detail=true")[1])["drift"]
        return [found[name] for name in lost]

    wait_until(lambda: drift() == [0, 0, 0, 0], "no drift")

    # What was lost was held until it was seen: its hours end then, and are not counted twice.
    def holdings(name: str) -> list[dict[str, Any]]:
        return list(api(f"partitions?job={name}")["results"])

    wait_until(lambda: all(one["released_at"] for one in holdings("ends")), "it is released")
    assert [one["partition"] for one in holdings("ends")] == ["p-ends-default-0"]
    wait_until(lambda: len(holdings("comes-back")) == 2, "both attempts are recorded")
    now, before = sorted(holdings("comes-back"), key=lambda one: one["reserved_at"], reverse=True)
    assert (before["partition"], now["partition"]) == (first, partition)
    assert before["released_at"] is not None
    assert before["released_at"] <= now["reserved_at"]
    assert now["released_at"] is None
