"""`vipu-admin` cordons a machine or hangs its agent: jobs, pages, API and `kubectl` say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.administrator import api_reader, describe_job, submit_job, vipu_admin, wait_for_words
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.e2e.administrator import Ask
    from tests.e2e.running_demo import RunningDemo

REASON = "new cables on Monday"
CORDONED = f"ag0 is cordoned: {REASON}"
SILENT = "ag0 has not answered since"


@pytest.fixture
def api(demo: RunningDemo) -> Ask:
    return api_reader(demo)


@pytest.fixture
def machines(demo: RunningDemo) -> Iterator[None]:
    """All machines are restored after the test, and no partition holds an IPU."""
    yield
    vipu_admin(demo, "uncordon", "agent", "ag0")
    vipu_admin(demo, "clear", "fault", "ag0")
    demo.kubectl("delete", "ipujobs", "--all", "--timeout=120s")
    wait_until(lambda: demo.stats()["total"] == {"used": 0, "available": 32}, "all IPUs free")


@pytest.mark.usefixtures("machines")
def test_a_cordon_is_named_to_the_job_that_waits_for_the_machine_and_left_to_the_one_on_it(
    demo: RunningDemo, page: Page, api: Ask
) -> None:
    submit_job(demo, "on-ag0", 4)
    wait_until(lambda: demo.status("on-ag0") == "Running", "on-ag0 Running")
    assert vipu_admin(demo, "cordon", "agent", "ag0", "--reason", REASON) == (
        "cordon agent (ag0): success.\n"
    )
    assert "Up,Cordoned" in vipu_admin(demo, "list", "agents")
    wait_for_words(page, "/fleet/", f"; {CORDONED}", f"Out of service: 4 IPUs ({CORDONED})")
    assert demo.status("on-ag0") == "Running"  # it may end in peace
    demo.kubectl("delete", "ipujob", "on-ag0", "--timeout=120s")

    submit_job(demo, "waits", 32)
    wait_until(lambda: CORDONED in describe_job(demo, "waits"), "the job names the cordon")
    description = describe_job(demo, "waits")
    assert f"blocks have up to 32; out of service: 4 IPUs ({CORDONED})" in description
    assert demo.status("waits") == "Pending"
    uid = demo.job("waits")["metadata"]["uid"]
    wait_for_words(page, f"/jobs/{uid}/", "Out of service", f"4 IPUs ({CORDONED})")
    reason = f"no block of 32 can come free; out of service: 4 IPUs ({CORDONED})"
    wait_for_words(page, "/", reason, f"free, but {CORDONED}")
    wait_for_words(page, "/fleet/", reason)
    assert CORDONED in api(f"jobs/{uid}")["message"]
    fleet = api("fleet")
    assert fleet["out_of_service"] == f"4 IPUs ({CORDONED})"
    assert [line["reason"] for line in fleet["queue"]] == [reason]
    states = {(each["machine"], each["state"]) for each in fleet["ipus"]}
    assert {state for machine, state in states if machine == "ag0"} == {"cordoned"}

    vipu_admin(demo, "uncordon", "agent", "ag0")
    wait_until(lambda: demo.status("waits") == "Running", "it starts once the cordon is gone")
    assert "cordoned" not in demo.job("waits")["status"]["lastMessage"]


@pytest.mark.usefixtures("machines")
def test_a_drain_waits_for_jobs_by_name_and_a_forced_one_is_told_to_the_job_that_it_moves(
    demo: RunningDemo, page: Page
) -> None:
    submit_job(demo, "drained", 4, restartPolicy={"type": "OnFailure"})
    wait_until(lambda: demo.status("drained") == "Running", "drained Running")
    order = ("drain", "agent", "ag0", "--reason", REASON)
    output = vipu_admin(demo, *order, "--no-wait", code=1)
    assert "not empty: p-drained-default-0: it is not relocatable" in output
    assert demo.status("drained") == "Running"
    wait_for_words(page, "/fleet/", f"; {CORDONED}")
    assert "drain agent (ag0): success." in vipu_admin(demo, "drain", "agent", "ag0", "--force")

    def moved() -> bool:
        job = demo.job("drained")["status"]
        return job.get("launcherStatus") == "Running" and job.get("restartCount") == 1

    wait_until(moved, "its next attempt runs on another machine")
    description = describe_job(demo, "drained")
    assert "PartitionLost" in description
    assert f"no longer knows partition p-drained-default-0; {CORDONED}" in description
    uid = demo.job("drained")["metadata"]["uid"]
    wait_for_words(page, f"/jobs/{uid}/", CORDONED)
    assert "p-drained" not in vipu_admin(demo, "list", "partitions", "--agent", "ag0")


@pytest.mark.usefixtures("machines")
def test_an_agent_that_hangs_on_command_is_what_its_jobs_and_the_pages_name(
    demo: RunningDemo, page: Page, api: Ask
) -> None:
    submit_job(demo, "fails", 2)
    submit_job(demo, "comes-back", 2, restartPolicy={"type": "OnFailure"})
    for name in ("fails", "comes-back"):
        wait_until(lambda name=name: demo.status(name) == "Running", f"{name} Running")  # type: ignore[misc]
    assert vipu_admin(demo, "provoke", "fault", "ag0") == "provoke fault (ag0): success.\n"

    wait_until(lambda: demo.status("fails") == "Failed", "it failed")
    description = describe_job(demo, "fails")
    assert SILENT in description
    assert "PartitionError" in description

    def moved() -> bool:
        job = demo.job("comes-back")["status"]
        return job.get("launcherStatus") == "Running" and job.get("restartCount") == 1

    wait_until(moved, "the other is restarted on another machine")
    assert SILENT in describe_job(demo, "comes-back")
    assert "Lost" in vipu_admin(demo, "get", "agent", "ag0")
    assert "ag0" not in vipu_admin(demo, "list", "partitions")

    uid = demo.job("fails")["metadata"]["uid"]
    wait_for_words(page, f"/jobs/{uid}/", SILENT, "PartitionError")
    agents = f"V-IPU agents of 127.0.0.1:{demo.ports['V-IPU']}"
    wait_for_words(page, "/system/", agents, "7 of 8 answer", "silent: ag0")
    wait_for_words(page, "/fleet/", f"Out of service: 4 IPUs ({SILENT}")
    wait_for_words(page, "/", f"ag0: {SILENT}")
    page.goto(demo.dashboard)
    page.locator('#health[class*=" is-"]').wait_for()
    assert "V-IPU agent" in page.locator("#health").inner_text()
    (component,) = [each for each in api("components")["results"] if each["name"] == agents]
    assert (component["state"], component["absent"]) == ("down", ["ag0"])
    fleet = api("fleet")
    assert fleet["out_of_service"].startswith(f"4 IPUs ({SILENT}")
    assert {i["state"] for i in fleet["ipus"] if i["machine"] == "ag0"} == {"faulty"}
    assert SILENT in api(f"jobs/{uid}")["message"]

    vipu_admin(demo, "clear", "fault", "ag0")
    wait_until(lambda: "Lost" not in vipu_admin(demo, "list", "agents"), "it answers again")
    wait_until(lambda: api("fleet")["out_of_service"] == "", "nothing is out of service")
