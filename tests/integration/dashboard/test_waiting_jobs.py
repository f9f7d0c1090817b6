"""A job that waits for IPUs: its place and the free IPUs are computed when they are shown."""

from __future__ import annotations

import datetime as dt
import html
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import JobRecord
from jobs.operator.observer import waiting_order
from partitions.vipu.errors import Unavailable
from tests.builders import jobhistory

if TYPE_CHECKING:
    from django.test import Client

    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db
NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def waits(name: str, minute: int = 0, **fields: Any) -> JobRecord:
    defaults: dict[str, Any] = {
        "status": "Pending",
        "reason": "NoCapacity",
        "message": "16 IPUs in one block are needed and not free now; blocks have up to 32",
        "created_at": NOON + dt.timedelta(minutes=minute),
        "started_at": None,
    }
    return jobhistory.job(name, **(defaults | fields))


def get_waiting(client: Client, job: JobRecord) -> Any:
    answer = client.get(f"/api/v1/jobs/{job.uid}/waiting")
    assert answer.status_code == 200
    return answer.json()


def facts(client: Client, job: JobRecord) -> dict[str, str]:
    """The facts of the card on the job's page, by label; none where there is no card."""
    text = client.get(f"/jobs/{job.uid}/").content.decode()
    card = re.search(r'aria-labelledby="diagnosis-title".*?</section>', text, re.DOTALL)
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", card[0], re.DOTALL) if card else []
    return {label: re.sub(r"<[^>]*>", "", value) for label, value in found}


def test_page_and_api_show_who_is_before_and_what_is_free_at_this_moment(
    user: Client, proxy: Proxy, clock: Clock
) -> None:
    job = waits("train", 5)
    older = waits("older", 1, namespace="team-b")
    assert get_waiting(user, job) == {
        "waits": True,
        "jobs_before": 1,
        "queue_length": 0,
        "line": None,
        "free": 32,
        "largest_free": 32,
        "free_as_of": None,
        "problem": "",
    }
    assert facts(user, job) == {"Older waiting jobs": "1", "Free IPUs": "32"}
    proxy.hold("other", size=8)
    JobRecord.objects.filter(pk=older.pk).update(status="Running", reason="IPUJobRunning")
    clock.later(2)
    assert (get_waiting(user, job)["jobs_before"], get_waiting(user, job)["free"]) == (0, 24)
    assert facts(user, job) == {"Older waiting jobs": "0", "Free IPUs": "24"}


def test_before_it_are_older_jobs_that_ask_and_those_that_have_run(
    admin: Client, proxy: Proxy
) -> None:
    job = waits("train", 5)
    waits("older", 1)
    waits("no-node", 2, reason="NoLabelledNode")
    waits("has-run", 8, status="Restarting")
    waits("newer", 9)
    waits("another-trouble", 1, reason="InvalidSpec")
    waits("suspended", 1, status="Suspended", reason="IPUJobSuspended")
    waits("gone", 1, deleted_at=timezone.now())
    assert get_waiting(admin, job)["jobs_before"] == 3


def test_the_order_is_that_in_which_the_operator_asks(admin: Client, proxy: Proxy) -> None:
    jobs = [waits(f"job-{n}", n, status="Restarting" if n == 3 else "Pending") for n in range(5)]

    def turn(job: JobRecord) -> float:
        made = job.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        return waiting_order(
            {"metadata": {"creationTimestamp": made}, "status": {"launcherStatus": job.status}}
        )

    in_order = sorted(jobs, key=lambda job: get_waiting(admin, job)["jobs_before"])
    first = sorted(jobs, key=turn)
    assert [job.name for job in in_order] == ["job-3", "job-0", "job-1", "job-2", "job-4"]
    assert [job.name for job in in_order] == [job.name for job in first]


def test_jobs_of_one_second_have_different_places(admin: Client, proxy: Proxy) -> None:
    jobs = [waits(name) for name in ("a", "b", "c")]
    assert [get_waiting(admin, job)["jobs_before"] for job in jobs] == [0, 1, 2]


@pytest.mark.parametrize(
    "state",
    [
        {"status": "Running", "reason": "IPUJobRunning"},
        {"reason": "Unschedulable"},
        {"deleted_at": NOON},
    ],
)
def test_a_job_that_asks_for_no_ipus_has_no_place(
    admin: Client, proxy: Proxy, state: dict[str, Any]
) -> None:
    job = waits("train", **state)
    assert get_waiting(admin, job) == {
        "waits": False,
        "jobs_before": None,
        "queue_length": None,
        "line": None,
        "free": None,
        "largest_free": None,
        "free_as_of": None,
        "problem": "",
    }
    assert facts(admin, job) == {}


def test_while_the_proxy_is_away_the_last_number_has_its_time(
    admin: Client, proxy: Proxy, clock: Clock
) -> None:
    job = waits("train")
    assert get_waiting(admin, job)["free"] == 32
    assert facts(admin, job)["Free IPUs"] == "32"
    proxy.stop()
    clock.later(10)
    found = get_waiting(admin, job)
    assert (found["jobs_before"], found["free"]) == (0, 32)
    assert dt.datetime.fromisoformat(found["free_as_of"]) < clock.now() - dt.timedelta(seconds=9)
    assert found["problem"].startswith("The V-IPU Proxy does not answer")
    assert re.fullmatch(r"32 at \d\d:\d\d:\d\d UTC", facts(admin, job)["Free IPUs"])
    proxy.start()


def test_a_number_that_was_never_read_is_unknown(admin: Client) -> None:
    job = waits("train")
    assert get_waiting(admin, job)["free"] is None
    assert facts(admin, job)["Free IPUs"] == "unknown"


def test_an_unchanged_answer_keeps_its_etag_and_a_change_makes_another(
    admin: Client, proxy: Proxy, clock: Clock
) -> None:
    job = waits("train", 5)
    addresses = {
        f"/api/v1/jobs/{job.uid}/waiting": {},
        f"/jobs/{job.uid}/": {"HX-Request": "true"},
    }
    tags = {path: admin.get(path, headers=kind)["ETag"] for path, kind in addresses.items()}
    clock.later(2)
    for path, kind in addresses.items():
        same = admin.get(path, headers={**kind, "If-None-Match": tags[path]})
        assert same.status_code == 304, path
    proxy.hold("other", size=8)
    clock.later(2)
    for path, kind in addresses.items():
        other = admin.get(path, headers={**kind, "If-None-Match": tags[path]})
        assert other.status_code == 200, path


def test_a_job_of_another_namespace_is_as_unknown_as_none(user: Client, proxy: Proxy) -> None:
    foreign = waits("train", namespace="team-b")
    assert user.get(f"/api/v1/jobs/{foreign.uid}/waiting").status_code == 404
    assert user.get("/api/v1/jobs/none/waiting").status_code == 404


def card(client: Client, job: JobRecord) -> str:
    """The card's text without markup."""
    text = client.get(f"/jobs/{job.uid}/").content.decode()
    found = re.search(r'aria-labelledby="diagnosis-title".*?</section>', text, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found[0])) if found else ""


def test_who_waits_reads_its_place_what_is_in_the_way_and_when_that_ends_at_the_latest(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    began = clock.now().replace(microsecond=0)
    running = {"launcherStatus": "Running", "startTime": f"{began:%Y-%m-%dT%H:%M:%SZ}"}
    limited = cluster.add_job("limited", "team-a", {"activeDeadlineSeconds": 3600}, **running)
    proxy.hold("limited", "team-a", 1, uid=limited)
    job = waits("large", uid="uid-large", ipus=32)
    proxy.hold("large", "team-a", 32)
    rows = facts(admin, job)
    end = began + dt.timedelta(hours=1)
    assert rows["Position in the queue"] == "1 of 1"
    assert rows["In the way"] == "limited"
    assert rows["Starts at the latest"] == f"when its time limit ends, at {end:%H:%M:%S} UTC"
    assert "needs 32 IPUs in one block, and the largest free block has 16." in card(admin, job)
    assert "Dashed: the block of 32 IPUs that comes free first, on ag0 to ag7." in card(admin, job)
    page = admin.get(f"/jobs/{job.uid}/").content.decode()
    assert page.count('<div class="machine is-target">') == 8
    assert "<title>ag0: team-a/limited, p-limited-team-a-0" in page
    called = get_waiting(admin, job)
    assert called["line"] == admin.get("/api/v1/queue").json()["results"][0]
    assert (called["line"]["position"], called["queue_length"]) == (1, 1)
    assert (called["line"]["blockers"], called["largest_free"]) == ([limited], 16)
    assert dt.datetime.fromisoformat(called["line"]["free_by"]) == end
    second = waits("second", uid="uid-second", ipus=32)
    proxy.hold("second", "team-a", 32)
    clock.later(2)
    assert "Block free at the latest" in facts(admin, second)  # an older job may take it
    text = re.sub(r"<[^>]*>", "", admin.get("/fleet/").content.decode())
    assert f"blocked by limited; starts by {end:%H:%M} UTC" in text
    assert f"blocked by limited; free by {end:%H:%M} UTC" in text
    assert "Oldest first. A newer job starts earlier if its block is free." in text
    found = admin.get("/api/v1/fleet").json()
    assert [each["free_by"] for each in found["queue"]] == [f"{end:%Y-%m-%dT%H:%M:%SZ}"] * 2
    assert found["policy"].startswith("Oldest first.")


def test_of_a_controller_that_is_silent_no_block_is_said_to_be_free_or_not(
    admin: Client, proxy: Proxy, clock: Clock
) -> None:
    job = waits("large", uid="uid-large", ipus=32)
    proxy.hold("small", "team-a", 1)
    proxy.hold("large", "team-a", 32)
    assert "the largest free block has 16." in card(admin, job)
    proxy.world.vipu.down = Unavailable("v1:8090: deadline exceeded")
    proxy.world.later(5)
    clock.later(10)
    text = card(admin, job)
    assert "16 IPUs in one block are needed" in text  # what the operator said last
    assert "no IPU is free" not in text
    assert re.fullmatch(r"31 at \d\d:\d\d:\d\d UTC", facts(admin, job)["Free IPUs"])
    assert get_waiting(admin, job)["largest_free"] is None


def test_a_job_for_which_the_operator_no_longer_asks_says_so(
    admin: Client, proxy: Proxy, clock: Clock
) -> None:
    job = waits("large", uid="uid-large", ipus=32)
    assert "The IPU Operator does not ask for the job's IPUs" in html.unescape(card(admin, job))
    proxy.hold("small", "team-a", 1)
    proxy.hold("large", "team-a", 32)
    clock.later(2)
    assert "does not ask" not in card(admin, job)


def test_the_limit_of_one_job_says_nothing_where_a_hidden_one_holds_the_block_too(
    user: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    began = clock.now().replace(microsecond=0)
    running = {"launcherStatus": "Running", "startTime": f"{began:%Y-%m-%dT%H:%M:%SZ}"}
    limited = cluster.add_job("limited", "team-a", {"activeDeadlineSeconds": 3600}, **running)
    secret = cluster.add_job("secret", "team-b", launcherStatus="Running")
    proxy.hold("limited", "team-a", 1, uid=limited)
    proxy.hold("secret", "team-b", 1, uid=secret)
    job = waits("large", uid="uid-large", ipus=32)
    proxy.hold("large", "team-a", 32)
    rows = facts(user, job)
    assert rows["In the way"] == "limited"
    assert "Starts at the latest" not in rows


def test_who_waits_reads_which_machines_are_out_of_service_and_why(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    proxy.world.vipu.cordons["ag7"] = "new cables on Monday"
    jobhistory.job("done", ipus=32, status="Completed", created_at=NOON, completed_at=NOON)
    job = waits("large", uid="uid-large", ipus=32)
    proxy.hold("large", "team-a", 32)
    closed = "4 IPUs (ag7 is cordoned: new cables on Monday)"
    assert facts(admin, job)["Out of service"] == closed
    # No block can come free, however long jobs of this size run.
    assert "Jobs of this size ran" not in facts(admin, job)
    assert f"Out of service: {closed}" in admin.get("/fleet/").content.decode()
    found = admin.get("/api/v1/fleet").json()
    assert found["out_of_service"] == closed
    assert found["queue"][0]["reason"] == f"no block of 32 can come free; out of service: {closed}"


def test_without_a_limit_the_time_that_such_jobs_ran_stands_in_for_it(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    endless = cluster.add_job("endless", "team-a", launcherStatus="Running")
    proxy.hold("endless", "team-a", 1, uid=endless)
    for number, minutes in enumerate((10, 20, 90)):
        end = NOON + dt.timedelta(minutes=minutes)
        jobhistory.job(
            f"done-{number}", ipus=32, status="Completed", created_at=NOON, completed_at=end
        )
    jobhistory.job("small", ipus=1, status="Completed", created_at=NOON, completed_at=NOON)
    job = waits("large", uid="uid-large", ipus=32)
    proxy.hold("large", "team-a", 32)
    rows = facts(admin, job)
    assert "Starts at the latest" not in rows
    assert rows["Jobs of this size ran"] == "20 min (median of 3)"
    with CaptureQueriesContext(connection) as queries:
        line = get_waiting(admin, job)["line"]
    assert (line["typical_seconds"], line["typical_jobs"]) == (1200, 3)
    # The run times come with the job.
    assert [each for each in queries.captured_queries if "percentile" in each["sql"]] == []


def test_a_job_larger_than_the_fleet_reads_that_it_can_never_start(
    admin: Client, proxy: Proxy
) -> None:
    job = waits("huge", uid="uid-huge", ipus=64)
    proxy.hold("huge", "team-a", 64)
    text = card(admin, job)
    assert "needs 64 IPUs in one block, and the largest block of the fleet has 32." in text
    assert "Ask for fewer IPUs." in text
    assert "Position in the queue" not in facts(admin, job)
    assert "Dashed" not in text


def test_a_reader_of_one_namespace_learns_no_name_of_another(
    user: Client, cluster: Cluster, proxy: Proxy
) -> None:
    secret = cluster.add_job("secret", "team-b", launcherStatus="Running")
    proxy.hold("secret", "team-b", 1, uid=secret)
    job = waits("large", uid="uid-large", ipus=32)
    proxy.hold("large", "team-a", 32)
    assert facts(user, job)["Position in the queue"] == "1 of 1"
    assert "ag0: a job of another namespace" in user.get(f"/jobs/{job.uid}/").content.decode()
    assert "secret" not in user.get(f"/jobs/{job.uid}/").content.decode()


def test_the_overview_says_how_many_wait_for_what_since_when_and_who_never_fits(
    admin: Client, cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.world.now = NOON
    monkeypatch.setattr(timezone, "now", lambda: proxy.world.now)
    proxy.hold("holder", "team-a", 32)
    for name, size, want in (
        ("first", 8, "1 job for 8 IPUs oldest 0 s"),
        ("second", 4, "2 jobs for 12 IPUs oldest 20 s"),
        ("huge", 64, "3 jobs for 76 IPUs oldest 40 s · 1 can never fit"),
    ):
        proxy.hold(name, "team-a", size)
        text = admin.get("/").content.decode()
        figure = text.partition('href="/queue/">\n    <span class="subheader">Waiting')[2]
        words = re.sub("<[^>]+>", " ", figure.partition("<svg")[0])
        assert " ".join(words.split()) == want
        proxy.world.later(20)
