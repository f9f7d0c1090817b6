"""The queue on its pages, as files and in the API: real proxy, real cluster, Postgres."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from dashboard import fleet
from dashboard.queue import page as queue_of
from dashboard.queue import typical
from ipuhub.web.readings import Shared
from tests.builders.fleetrows import NOON, job_row
from tests.integration.dashboard.test_fleet_page import get_page, hold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.test import Client

    from ipuhub.web.access import Scope
    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db


def test_the_queue_names_who_is_in_the_way(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    hold(cluster, proxy, "small", "team-a", 1)
    proxy.hold("large", "team-a", 32)
    proxy.hold("huge", "team-a", 64)
    for address in ("/fleet/", "/queue/"):
        text = get_page(admin, address)
        assert "needs a block of 32, largest free 16" in text
        assert re.search(r'blocked by <a href="[^"]*uid-small[^"]*">small</a>', text)
        assert "never fits: the largest block has 32" in text
    assert "1 can never fit" in get_page(admin, "/")


def test_a_job_for_which_the_operator_no_longer_asks_still_waits(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    refused = {"type": "Pending", "status": "True", "reason": "NoCapacity"}
    uid = cluster.add_job("bert", "team-a", launcherStatus="Pending", conditions=[refused])
    for address in ("/", "/fleet/", "/queue/"):
        text = get_page(admin, address)
        assert "1 job waits and is not in the queue</strong>: the IPU Operator" in text, address
        assert "No job is waiting" not in text, address
    assert "1 not in the queue" in get_page(admin, "/")
    proxy.hold("other", "team-a", 64)
    clock.later(2)
    text = get_page(admin, "/queue/")
    assert "never fits" in text
    assert "1 job waits and is not in the queue" in text
    proxy.hold("bert", "team-a", 64, uid=uid)
    clock.later(2)
    assert "not in the queue" not in get_page(admin, "/queue/")


def test_all_who_wait_are_on_the_pages_of_the_queue(
    user: Client, cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_of, "A_PAGE", 2)
    monkeypatch.setattr(fleet, "_LINES", 2)
    hold(cluster, proxy, "all", "team-a", 32)
    for number in range(5):
        proxy.hold(f"waits-{number}", "team-a", 2**number)
    assert 'href="/queue/">All 5 that wait' in get_page(user)
    sizes = []
    for number in (1, 2, 3, 9):  # a page that is gone is the last
        text = get_page(user, f"/queue/?page={number}")
        assert "5 jobs for 31 IPUs, in the order of service" in text
        sizes.append(re.findall(r"</svg>(\d+) IPU", text))
        assert ('rel="next"' in text) is (number < 3)
        assert f'hx-get="/queue/{f"?page={min(number, 3)}" if number > 1 else ""}"' in text
    assert sizes == [["1", "2"], ["4", "8"], ["16"], ["16"]]


def test_who_waits_without_a_limit_is_told_how_long_such_jobs_ran(
    user: Client, cluster: Cluster, proxy: Proxy
) -> None:
    hold(cluster, proxy, "all", "team-a", 32)
    uid = cluster.add_job("large", "team-a")
    proxy.hold("large", "team-a", 16, uid=uid)
    job_row("large", uid=uid, ipus=16)
    for name, minutes, ipus in (("a", 10, 16), ("b", 20, 16), ("c", 60, 16), ("d", 1, 4)):
        done = NOON + dt.timedelta(minutes=minutes)
        job_row(name, ipus=ipus, started_at=NOON, completed_at=done)
        job_row(name, "team-b", ipus=ipus, started_at=NOON, completed_at=NOON)
    for address in ("/", "/fleet/", "/queue/"):
        assert "; jobs of this size ran 20 min (median of 3)" in get_page(user, address), address
    (line,) = user.get("/api/v1/fleet").json()["queue"]
    assert (line["typical_seconds"], line["typical_jobs"]) == (1200, 3)
    assert user.get("/api/v1/queue").json()["results"] == [line]


@pytest.mark.parametrize("address", ["/queue/", "/"])
def test_what_is_read_while_the_cache_is_renewed_is_shown(
    user: Client, cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(typical, "_KEPT", Shared(seconds=0))  # the minute is over at each question
    hold(cluster, proxy, "all", "team-a", 32)
    uid = cluster.add_job("large", "team-a")
    proxy.hold("large", "team-a", 16, uid=uid)
    job_row("large", uid=uid, ipus=16)
    job_row("a", ipus=16, started_at=NOON, completed_at=NOON + dt.timedelta(minutes=10))
    assert "; jobs of this size ran 10 min (median of 1)" in get_page(user, address)


def test_the_queue_has_files_and_pages_of_the_api(
    user: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    hold(cluster, proxy, "all", "team-a", 32)
    for number, ipus in enumerate((4, 2, 64, 1)):  # of 64 there is no block
        name, namespace = f"waits-{number}", "team-b" if ipus == 2 else "team-a"
        uid = cluster.add_job(name, namespace, user=f"user-{number}")
        proxy.hold(name, namespace, ipus, uid=uid)
    clock.later(3)
    page = get_page(user, "/queue/")
    table, rows, lines = (
        b"".join(user.get(f"/queue/?format={form}").streaming_content).decode()
        for form in ("csv", "json", "jsonl")
    )
    assert [f'href="?format={form}"' in page for form in ("csv", "json", "jsonl")] == [True] * 3
    order = [int(row["ipus"]) for row in csv.DictReader(io.StringIO(table))]
    assert (sorted(order), order[-1]) == ([1, 2, 4, 64], 64)  # the others came at one instant
    found = json.loads(rows)
    assert [json.loads(line) for line in lines.splitlines()] == found
    assert [row["position"] for row in found] == [1, 2, 3, 0]
    users = {row["ipus"]: row["user"] for row in found}
    assert users == {4: "user-0", 2: "", 1: "user-3", 64: "user-2"}
    assert found[0]["blockers"] == ["uid-all"]
    assert next(csv.DictReader(io.StringIO(table)))["blockers"] == "uid-all"
    assert "user-1" not in table
    address, sizes = "/api/v1/queue?page_size=1", []
    while address:
        body = user.get(address).json()
        sizes += [line["ipus"] for line in body["results"]]
        address = body["next"]
    assert sizes == order
    for form, same in (("csv", table), ("jsonl", lines)):
        answer = user.get(f"/api/v1/queue.{form}")
        assert b"".join(answer.streaming_content).decode() == same
    assert user.get("/api/v1/queue?cursor=WzFd").status_code == 400
    assert user.get("/api/v1/queue.csv?cursor=x").status_code == 400


def test_how_long_jobs_ran_is_read_once_a_minute_for_each_that_waits(
    user: Client,
    cluster: Cluster,
    proxy: Proxy,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever of them stand on a page together."""
    reads: list[set[str]] = []
    real = typical.typical_runs

    def counted(scope: Scope, uids: Iterable[str]) -> Any:
        reads.append(set(uids))
        return real(scope, reads[-1])

    monkeypatch.setattr(typical, "typical_runs", counted)
    monkeypatch.setattr(queue_of, "A_PAGE", 1)
    hold(cluster, proxy, "all", "team-a", 32)
    first, second = (cluster.add_job(name, "team-a") for name in ("first", "second"))
    for name, uid in (("first", first), ("second", second)):
        proxy.hold(name, "team-a", 16, uid=uid)
        job_row(name, uid=uid, ipus=16)
    for address in ("/queue/", "/queue/?page=2", "/fleet/", "/queue/"):
        get_page(user, address)
    assert [len(each) for each in reads] == [1, 1]
    assert reads[0] | reads[1] == {first, second}
    clock.later(61)
    get_page(user, "/fleet/")
    assert reads[2:] == [{first, second}]
