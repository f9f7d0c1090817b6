"""`vipu-admin` breaks one IPU: its job reports it and runs elsewhere, and the IPU is repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.administrator import api_reader, describe_job, submit_job, vipu_admin, wait_for_words
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.e2e.running_demo import RunningDemo

BROKEN = "ag0: IPU 0 has a memory error"


@pytest.fixture
def repaired(demo: RunningDemo) -> Iterator[None]:
    """No IPU has a fault after the test, and no partition holds an IPU."""
    yield
    vipu_admin(demo, "clear", "fault", "ag0", "--ipu", "0")
    demo.kubectl("delete", "ipujobs", "--all", "--timeout=120s")
    wait_until(lambda: demo.stats()["total"] == {"used": 0, "available": 32}, "all IPUs free")


@pytest.mark.usefixtures("repaired")
def test_a_job_on_a_broken_ipu_is_told_and_gets_its_next_attempt_elsewhere(
    demo: RunningDemo, page: Page
) -> None:
    api = api_reader(demo)
    submit_job(demo, "hit", 2, restartPolicy={"type": "OnFailure"})
    wait_until(lambda: demo.status("hit") == "Running", "hit Running")
    assert vipu_admin(demo, "provoke", "fault", "ag0", "--ipu", "0").endswith(": success.\n")

    def went_on() -> bool:
        status = demo.job("hit")["status"]
        return status.get("launcherStatus") == "Running" and status.get("restartCount") == 1

    wait_until(went_on, "the next attempt runs")
    description = describe_job(demo, "hit")
    assert "PartitionError" in description
    assert BROKEN in description
    uid = demo.job("hit")["metadata"]["uid"]
    wait_for_words(page, f"/jobs/{uid}/", "PartitionError", BROKEN)
    fleet = api("fleet")
    assert fleet["out_of_service"] == f"1 IPU ({BROKEN})"
    wait_for_words(page, "/fleet/", f"Out of service: 1 IPU ({BROKEN})")
    faulty = [each for each in fleet["ipus"] if each["state"] == "faulty"]
    assert [(each["machine"], each["position"]) for each in faulty] == [("ag0", 0)]
    held = {(i["machine"], i["position"]) for i in fleet["ipus"] if i["job_uid"] == uid}
    assert len(held) == 2
    assert ("ag0", 0) not in held
    assert "Fault of IPU 0" in vipu_admin(demo, "get", "agent", "ag0")

    vipu_admin(demo, "clear", "fault", "ag0", "--ipu", "0")
    wait_until(lambda: api("fleet")["out_of_service"] == "", "the IPU is in service again")
    assert "Fault of IPU 0" not in vipu_admin(demo, "get", "agent", "ag0")
    assert demo.job("hit")["status"]["restartCount"] == 1
