"""The overview: live data, history from PostgreSQL, and outages of the cluster."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import strip_tags

from ipuhub.models import RecordFault, WatchCheckpoint, WatchGap
from partitions.models import CapacityChange
from tests.builders.fleetrows import NOON, checkpoint, job_row, partition_row
from tests.builders.questions import count_queries
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from usage.models import PodLifetime
from usage.utilization.rollups import refresh

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db
RUNNING: dict[str, Any] = {
    "launcherStatus": "Running",
    "ipus": 4,
    "workersStatus": {"active": 1},
    "partitions": [{"id": "p-bert-team-a-0", "controller": "v1:8090", "state": "ACTIVE"}],
}


def fault() -> None:
    RecordFault.objects.create(
        watch="pods", uid="u", code="Bad", message="m", first_at=NOON, last_at=NOON
    )


def get_overview(client: Client) -> str:
    answer = client.get("/")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_new_job_shows_at_the_next_poll(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    assert "No IPUJobs yet" in get_overview(admin)
    cluster.add_job("bert", "team-a", **RUNNING)
    proxy.hold("bert", "team-a", 4)
    clock.later(3)
    text = get_overview(admin)
    assert "1 running" in text
    assert "1 partition" in text
    assert reverse("jobs:list") in text
    assert "4 <span" in text
    assert "of 32" in text


def test_a_user_sees_nothing_of_other_namespaces(
    user: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    cluster.add_job("mine", "team-a", **RUNNING)
    cluster.add_job("secret-live", "team-b", **RUNNING)
    proxy.hold("mine", "team-a", 4)
    proxy.hold("secret-live", "team-b", 8)
    job_row("done", "team-a", completed_at=NOON + dt.timedelta(minutes=3))
    job_row("secret-done", "team-b", completed_at=NOON + dt.timedelta(minutes=3))
    fault()
    text = get_overview(user)
    assert "mine" in text
    assert "done" in text
    assert "secret" not in text
    assert "team-b" not in text
    assert "1 fault" not in text
    assert "4 <span" in text  # of his namespaces, not the 12 of all
    assert "20 free in the fleet" in text


def test_a_finished_job_leaves_the_active_ones(admin: Client, cluster: Cluster) -> None:
    cluster.add_job("over", "team-a", launcherStatus="Completed")
    job_row("over", completed_at=NOON + dt.timedelta(seconds=65))
    text = get_overview(admin)
    assert "0 running" in text
    assert reverse("jobs:detail", args=["uid-team-a-over"]) in text
    assert "60 s" in text  # how long it ran: started 5 s after noon


def test_while_the_api_server_is_away_the_last_jobs_show_with_their_age(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    cluster.add_job("bert", "team-a", **RUNNING)
    assert "1 running" in get_overview(admin)
    cluster.stop()
    try:
        clock.later(75)
        text = get_overview(admin)
        assert "1 running" in text
        assert "The Kubernetes API does not answer" in text
        assert "75 s" in text
        assert "The V-IPU Proxy does not answer" not in text
    finally:
        cluster.start()
    clock.later(10)
    assert "does not answer" not in get_overview(admin)


def test_a_web_process_that_never_saw_the_cluster_shows_what_was_recorded(
    admin: Client, clock: Clock
) -> None:
    checkpoint("ipujobs", clock.now() - dt.timedelta(seconds=300))
    job_row("bert", partitions=[{"id": "p-bert-team-a-0"}])
    job_row("over", completed_at=NOON + dt.timedelta(minutes=3))
    partition_row("bert")
    text = get_overview(admin)
    assert "1 partition" in text
    assert "5 min" in text  # the age of what stands in
    assert "1 running" in text
    assert "the prober has received nothing since" in text


def test_the_history_says_how_far_it_goes(admin: Client) -> None:
    assert "start <code>manage.py run_prober" in get_overview(admin)
    checkpoint("pods", NOON + dt.timedelta(hours=3))
    checkpoint("ipujobs", NOON)
    assert "2026-11-20 12:00 UTC" in get_overview(admin)


def test_gaps_of_this_month_stand_beside_how_far_the_history_goes(
    admin: Client, clock: Clock
) -> None:
    began = clock.now() - dt.timedelta(minutes=5)
    checkpoint("pods", clock.now())
    WatchGap.objects.create(
        watch="pods",
        began_at=NOON.replace(year=2020),
        ended_at=NOON.replace(year=2020),
        cause="old",
    )
    assert "gap</a>" not in get_overview(admin)
    WatchGap.objects.create(watch="pods", began_at=began, ended_at=clock.now(), cause="away")
    text = get_overview(admin)
    assert "1 gap</a> this month" in text
    assert f"{began:%Y-%m-%d %H:%M} UTC" in text


def test_ipu_hours_of_the_month_are_those_of_the_namespaces_one_may_see(
    user: Client, clock: Clock
) -> None:
    month = clock.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    clock.later((month + dt.timedelta(days=10) - clock.now()).total_seconds())
    user.force_login(get_user_model().objects.get())
    for uid, namespace, ipus in (("mine", "team-a", 4), ("secret", "team-b", 16)):
        PodLifetime.objects.create(
            uid=uid,
            namespace=namespace,
            pod_name=uid,
            micro_ipus=ipus * 10**6,
            created_at=month,
            scheduled_at=month - dt.timedelta(hours=1),
            finished_at=month + dt.timedelta(minutes=90),
            updated_at=month,
        )
    assert ">6.00 <" in get_overview(user)  # the hour before the month is not of it


def test_an_admin_is_led_to_the_faults(admin: Client) -> None:
    fault()
    assert "1 fault<" in get_overview(admin)


def test_the_polled_part_is_304_until_a_job_changes(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    answer = admin.get("/", headers={"HX-Request": "true"})
    tag = {"HX-Request": "true", "If-None-Match": answer["ETag"]}
    clock.later(3)
    assert admin.get("/", headers=tag).status_code == 304
    cluster.add_job("bert", "team-a", **RUNNING)
    clock.later(3)
    assert admin.get("/", headers=tag).status_code == 200


def test_the_tag_of_one_user_is_of_no_use_to_who_sees_less(
    admin: Client, client: Client, ann: User
) -> None:
    tag = admin.get("/", headers={"HX-Request": "true"})["ETag"]
    client.force_login(ann)
    headers = {"HX-Request": "true", "If-None-Match": tag}
    assert client.get("/", headers=headers).status_code == 200


def test_polls_of_the_same_moment_share_one_rendering(
    admin: Client, cluster: Cluster, clock: Clock, django_user_model: Any
) -> None:
    """The frame has the same data as a page, and names only the reader, who sees nothing yet."""
    cluster.add_job("bert", "team-a", **RUNNING)
    poll = {"HX-Request": "true"}
    other = Client()
    other.force_login(django_user_model.objects.create_user("other", is_staff=True))
    first, second = admin.get("/", headers=poll), other.get("/", headers=poll)
    assert [each.name for each in first.templates][:1] == ["_overview.html"]
    assert (second.templates, second.text) == ([], first.text)
    strangers = [Client(), Client()]
    for number, each in enumerate(strangers):
        each.force_login(django_user_model.objects.create_user(f"new-{number}"))
        assert f"grant_namespace new-{number} " in each.get("/", headers=poll).text


def test_polls_of_the_same_moment_share_one_reading(
    admin: Client, cluster: Cluster, clock: Clock, django_user_model: Any
) -> None:
    """Many dashboards that stay open: each asks the database for its user alone."""
    cluster.add_job("bert", "team-a", **RUNNING)
    poll = {"HX-Request": "true"}
    assert "1 running" in admin.get("/", headers=poll).text
    other = Client()
    other.force_login(django_user_model.objects.create_user("other", is_staff=True))
    with CaptureQueriesContext(connection) as queries:
        assert "1 running" in other.get("/", headers=poll).text
    assert len(queries) <= 2  # session and user
    clock.later(4)
    cluster.add_job("gpt", "team-a", **RUNNING)
    assert "2 running" in other.get("/", headers=poll).text


def test_a_page_that_is_opened_shares_nothing_with_polls(
    admin: Client, cluster: Cluster, clock: Clock
) -> None:
    fault()
    assert "1 fault<" in admin.get("/", headers={"HX-Request": "true"}).text
    RecordFault.objects.all().delete()
    assert "1 fault<" not in get_overview(admin)


def test_polls_share_nothing_with_those_who_may_see_less(
    admin: Client, ann: User, cluster: Cluster, clock: Clock
) -> None:
    cluster.add_job("hush", "team-b", **RUNNING)
    poll = {"HX-Request": "true"}
    assert "1 running" in admin.get("/", headers=poll).text
    other = Client()
    other.force_login(ann)
    assert "1 running" not in other.get("/", headers=poll).text


def test_the_month_stands_against_the_same_time_of_last_month(admin: Client, clock: Clock) -> None:
    """Usage later in last month does not count; nor does the time of now within its hour."""
    this = clock.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    last = (this - dt.timedelta(days=1)).replace(day=1)
    clock.later((this + dt.timedelta(days=10, minutes=30) - clock.now()).total_seconds())
    admin.force_login(get_user_model().objects.get())
    store_rate("ipu", "2", str(last.date()))
    for name, began, hours in (
        ("now", this, 6),
        ("then", last + dt.timedelta(days=1), 3),
        ("later", last + dt.timedelta(days=12), 50),
    ):
        PodLifetime.objects.create(
            uid=name,
            namespace="team-a",
            pod_name=name,
            micro_ipus=4 * 10**6,
            created_at=began,
            scheduled_at=began,
            finished_at=began + dt.timedelta(hours=hours),
            updated_at=began,
        )
    text = get_overview(admin)
    assert "48.0 <span" in text  # 24 IPU-hours at 2 each
    assert "24.0 IPU-h · +100 % on" in strip_tags(text)
    assert "24.00 EUR, 12.0 IPU-hours of pods" in text


def test_the_share_held_this_month_stands_beside_that_of_now(
    admin: Client, proxy: Proxy, clock: Clock
) -> None:
    def held(client: Client) -> str:
        return strip_tags(get_overview(client).partition("IPUs held")[2].partition("</a>")[0])

    month = clock.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    clock.later((month + dt.timedelta(days=10) - clock.now()).total_seconds())
    admin.force_login(get_user_model().objects.get())
    proxy.hold("bert", "team-a", 4)
    assert "12.5 % now" in held(admin)
    CapacityChange.objects.create(
        controller="v1:8090", at=month - dt.timedelta(days=9), total=32, free=32
    )
    WatchCheckpoint.objects.create(name="capacity", position_at=clock.now())
    # Half of the ten days of this month, all IPUs.
    partition_row(
        "past",
        controller="v1:8090",
        reserved_at=month - dt.timedelta(days=5),
        released_at=month + dt.timedelta(days=5),
        size=32,
    )
    refresh(clock.now())
    clock.later(61)
    assert "12.5 % now · 50.0 % this month" in held(admin)
    admin.force_login(get_user_model().objects.create_user("eve"))
    assert "this month" not in held(admin)


def test_each_figure_has_its_day_in_words_and_as_a_line(admin: Client, clock: Clock) -> None:
    at = clock.now()
    ago = {hours: at - dt.timedelta(hours=hours) for hours in (1, 2, 3, 5)}
    partition_row("held", reserved_at=ago[5], released_at=ago[1])
    PodLifetime.objects.create(
        uid="pod",
        namespace="team-a",
        pod_name="pod",
        job_uid="uid-held",
        partition="p-held-team-a-0",
        micro_ipus=4 * 10**6,
        created_at=ago[5],
        scheduled_at=ago[5],
        finished_at=ago[3],
        updated_at=at,
    )
    job_row("slow", created_at=ago[3], started_at=ago[1], completed_at=at, status="Failed")
    text = get_overview(admin)
    assert "IPUs held in the last 24 hours: from 0 to 4, now 0" in text
    assert "IPUs held but idle in the last 24 hours: from 0 to 4, now 0" in text
    assert "Jobs waiting in the last 24 hours: from 0 to 1, now 0" in text
    assert "Failed jobs per hour in the last 24 hours: at most 1" in text
    assert text.count('class="spark"') == 5
    assert "1 job failed at " in text
    assert "style=" not in text


def test_the_day_is_read_once_a_minute(admin: Client, clock: Clock) -> None:
    def parts() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert admin.get("/").status_code == 200
        return sum("range_agg" in query["sql"] for query in queries.captured_queries)

    now = clock.now()
    clock.later(600 - now.timestamp() % 600 + 1)  # a step has just begun
    assert [parts(), parts()] == [1, 0]
    clock.later(61)
    assert parts() == 1


@pytest.mark.parametrize("fill", ["job", "group"])
@pytest.mark.parametrize(
    ("who", "role"), [("admin", ""), ("user", ""), ("user", "accountant"), ("user", "admin")]
)
def test_the_page_asks_few_questions(
    request: pytest.FixtureRequest, cluster: Cluster, proxy: Proxy, who: str, role: str, fill: str
) -> None:
    client: Any = request.getfixturevalue(who)
    if role:
        grant(get_user_model().objects.get(), role)
    proxy.hold("runs", "team-a", 4, uid=cluster.add_job("runs", "team-a", **RUNNING))
    proxy.hold("waits", "team-a", 32, uid=cluster.add_job("waits", "team-a"))
    proxy.hold("waits-too", "team-a", 32, uid=cluster.add_job("waits-too", "team-a"))
    store_rate("cpu", "1")
    job_row("bert")
    job_row("over", completed_at=NOON + dt.timedelta(minutes=3))
    checkpoint("pods", NOON)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"/?fill={fill}").status_code == 200
    assert count_queries(queries) <= 8


def test_a_job_that_is_about_to_run_is_polled_each_second(
    admin: Client, cluster: Cluster, clock: Clock
) -> None:
    assert "data-soon" not in get_overview(admin)
    cluster.add_job("bert", "team-a", launcherStatus="Pending")
    clock.later(3)
    assert "data-soon" in get_overview(admin)
    clock.later(60)
    assert "data-soon" not in get_overview(admin)


def test_addresses_of_what_is_away_are_for_administrators(user: Client, settings: Any) -> None:
    text = get_overview(user)
    assert "The web process has no usable kubeconfig." in text
    assert settings.KUBECONFIG not in text
