"""Search: returns all matches that the user may see, and nothing else."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard.search import job_of_pod
from tests.builders import jobhistory
from tests.builders.fleetrows import job_row
from tests.builders.questions import count_queries
from tests.builders.roles import grant
from usage.models import PurgeState

if TYPE_CHECKING:
    from datetime import datetime

    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db


def page_of(client: Client, text: str) -> str:
    answer = client.get("/search/", {"q": text})
    assert answer.status_code == 200
    return answer.content.decode().partition("<main")[2]


def found(client: Client, text: str) -> str:
    """Return the text of the page; the API has the same results in the same order."""
    html = page_of(client, text)
    reply = client.get("/api/v1/search", {"q": text}).json()
    links = re.findall(r'<a class="fw-medium" href="([^"]*)"', html)
    pages = [each["page"].removeprefix("http://testserver") for each in reply["results"]]
    assert pages == [unescape(link) for link in links]
    assert reply["unsearched"] in unescape(html)
    return html


def test_a_part_of_a_jobs_name_finds_it(admin: Client) -> None:
    row = job_row("resnet50-train", "team-a", user="anna")
    text = found(admin, "NET50")
    assert f"/jobs/{row.uid}/" in text
    assert "team-a · Running · anna" in text
    assert f"/jobs/{row.uid}/" in found(admin, row.uid)
    assert "Nothing found for “bert”" in found(admin, "bert")
    (reply,) = admin.get("/api/v1/search?q=net50").json()["results"]
    assert (reply["kind"], reply["name"], reply["job"]) == ("Job", row.name, row.uid)
    assert reply["page"] == f"http://testserver/jobs/{row.uid}/"


def test_a_namespace_and_a_name_find_the_jobs_of_that_name_alone(admin: Client) -> None:
    row = job_row("bert", "team-a")
    job_row("bert-large", "team-a")
    job_row("bert", "team-b")
    text = found(admin, "team-a/bert")
    assert f"/jobs/{row.uid}/" in text
    assert text.count("/jobs/uid-") == text.count("team-a · ") == 1


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("bert-launcher", "bert"),
        ("bert-worker-0", "bert"),
        ("my-bert-worker-12", "my-bert"),
        ("bert-0", ""),
        ("bert", ""),
        ("", ""),
    ],
)
def test_the_job_of_a_pod_is_known_by_its_name(pod: str, job: str) -> None:
    assert job_of_pod(pod) == job


def test_a_pods_name_finds_its_job(admin: Client) -> None:
    row = job_row("bert")
    assert f"/jobs/{row.uid}/" in found(admin, "bert-worker-0")


def test_a_held_partition_is_found_by_a_part_of_its_id(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    proxy.hold("bert", "team-a", 4)
    text = found(admin, "p-bert")
    assert "p-bert-team-a-0" in text
    assert "/jobs/uid-bert/" in text


def test_users_groups_and_namespaces_lead_to_their_jobs(admin: Client) -> None:
    job_row("x", "vision", user="anna", group="research")
    for kind, name in (("user", "anna"), ("group", "research"), ("namespace", "vision")):
        assert f"/jobs/?{kind}={name}" in found(admin, name)
        part = found(admin, name[1:-1].upper())
        assert f"/jobs/?{kind}={name}" in part
    assert "Nothing found" in found(admin, "annb")


def used(group: str, now: datetime) -> None:
    """Record a pod of a job of this group, in a namespace without readers."""
    job = jobhistory.job("train", "vision", uid=f"uid-{group}", group=group)
    jobhistory.pod(job, group=group, scheduled_at=now - timedelta(hours=1))


def test_an_accountant_finds_whose_usage_they_see(client: Client) -> None:
    """Jobs of `team-a` are shown to them, of `vision` the usage alone, as on the usage page."""
    ada = get_user_model().objects.create_user("ada")
    grant(ada, "accountant")
    grant(ada, "viewer", "team-a")
    client.force_login(ada)
    now = timezone.now()
    for namespace, group, user in (("team-a", "speech", "anna"), ("vision", "pictures", "paul")):
        job = jobhistory.job("train", namespace, group=group, user=user)
        jobhistory.pod(job, group=group, user=user, scheduled_at=now - timedelta(hours=1))
    for kind, name in (("group", "pictures"), ("user", "paul"), ("namespace", "vision")):
        text = found(client, name[1:].upper())
        assert f'href="/usage/?{kind}={name}&amp;window=30d"' in text, name
        assert client.get(f"/usage/?{kind}={name}&window=30d").status_code == 200
    text = found(client, "speech")
    assert ("/jobs/?group=speech" in text, "/usage/?group" in text) == (True, False)


def test_usage_is_not_added_up_for_each_search(client: Client, clock: Clock) -> None:
    client.force_login(ada := get_user_model().objects.create_user("ada"))
    grant(ada, "accountant")
    used("pictures", clock.now())
    with CaptureQueriesContext(connection) as first:
        assert "its usage" in page_of(client, "pictures")
    used("speech", clock.now())
    with CaptureQueriesContext(connection) as second:
        assert "its usage" not in page_of(client, "speech")
    assert count_queries(first) <= 8
    assert count_queries(second) < count_queries(first)
    clock.later(301)
    assert "its usage" in found(client, "speech")


def test_a_search_says_why_it_leaves_out_usage(client: Client, clock: Clock) -> None:
    client.force_login(ada := get_user_model().objects.create_user("ada"))
    grant(ada, "accountant")
    used("pictures", clock.now())
    day = clock.now().date()
    PurgeState.objects.create(purged_before=day)
    text = found(client, "pictures")
    assert "Nothing found" in text
    assert (
        f"Usage was not searched: Raw rows before {day} were purged; daily totals remain.<" in text
    )


def test_nobody_else_finds_the_names_of_foreign_usage(user: Client) -> None:
    job = jobhistory.job("train", "vision", group="pictures", user="paul")
    jobhistory.pod(job, group="pictures", user="paul")
    for name in ("pictures", "paul", "vision"):
        assert "Nothing found" in found(user, name)


def pod_row(node: str, namespace: str, **fields: object) -> None:
    """A pod on a node; running, unless it finished."""
    jobhistory.pod(jobhistory.job(node[::-1], namespace), **{"node": node, **fields})


def test_a_node_leads_to_its_running_pods(admin: Client) -> None:
    pod_row("rack3-node12", "team-a")
    pod_row("rack4-node1", "team-a", finished_at=timezone.now())
    text = found(admin, "Rack")
    address = "/usage/pods/?node=rack3-node12&amp;running=true"
    assert f'href="{address}"' in text
    assert "rack4" not in text
    listed = admin.get(address.replace("&amp;", "&")).content.decode()
    assert "1 pod" in listed


def test_nodes_are_found_by_whom_their_pods_are_shown_to(
    user: Client, settings: SettingsWrapper
) -> None:
    pod_row("secret-node", "team-b")
    pod_row("own-node", "team-a")
    assert "secret-node" not in found(user, "-node")
    assert "?node=own-node" in found(user, "-node")
    settings.USAGE_ENABLED = False  # there is no list of pods
    assert "Node" not in found(user, "own-node").partition("<tbody>")[2]


def test_pages_are_found_by_whom_they_are_for(admin: Client) -> None:
    assert '<td class="text-secondary">Page</td>' in found(admin, "sys")
    assert 'href="/account/roles/">Role changes</a>' in found(admin, "role")
    assert 'href="/usage/rates/">Rates</a>' in found(admin, "rates")


def test_pages_of_a_section_are_found_by_whom_they_are_for(user: Client) -> None:
    assert 'href="/audit/">Audit</a>' in found(user, "audit")
    assert 'href="/help/">Help</a>' in found(user, "help")
    for text in ("rates", "users", "reports", "role changes"):
        assert "Nothing found" in found(user, text), text


def test_nothing_of_other_namespaces_is_found(user: Client, cluster: Cluster, proxy: Proxy) -> None:
    job_row("secret", "team-b", user="eve", group="spies")
    proxy.hold("secret", "team-b", 4)
    for text in ("secret", "p-secret", "eve", "spies", "team-b", "secret-worker-0", "sys"):
        assert "Nothing found" in found(user, text), text


@pytest.mark.parametrize("text", ["%", "_", "'; DROP TABLE", "<script>alert(1)</script>", "\u202e"])
def test_odd_texts_find_nothing_and_stay_text(admin: Client, text: str) -> None:
    job_row("bert")
    html = found(admin, text)
    assert "Nothing found" in html
    assert "<script>alert" not in html


@pytest.mark.parametrize("text", ["x" * 254, "a\0b"])
def test_a_text_that_is_no_name_is_refused_in_words(admin: Client, text: str) -> None:
    for address in ("/search/", "/api/v1/search"):
        answer = admin.get(address, {"q": text})
        assert answer.status_code == 400
        assert "q: at most " in answer.content.decode()


def test_it_asks_postgres_three_times_and_who_searches(user: Client) -> None:
    job_row("bert")
    with CaptureQueriesContext(connection) as queries:
        page_of(user, "bert")
    assert count_queries(queries) <= 6
    with CaptureQueriesContext(connection) as queries:
        page_of(user, "")
    assert count_queries(queries) <= 3
