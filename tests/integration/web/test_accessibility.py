"""Every page as axe-core judges it: WCAG 2.2 A and AA, on a desk and on a phone, light and dark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.integration.web.livepages import axe_violations, live_server, page_of
from usage.reports.making import make_month
from usage.time.months import usage_zone
from usage.time.windows import Month

PAGES = (
    "/",
    "/fleet/",
    "/jobs/",
    "/jobs/{job}/",
    "/jobs/{job}/logs/",
    "/jobs/{job}/pods/",
    "/jobs/{job}/events/",
    "/jobs/{job}/usage/",
    "/jobs/{job}/yaml/",
    "/partitions/",
    "/partitions/stats/",
    "/partitions/query/",
    "/usage/",
    "/usage/pods/",
    "/usage/reports/",
    "/usage/reports/{month}/groups/",
    "/usage/reports/{month}/statement/?group=team-a",
    "/usage/rates/",
    "/usage/gaps/",
    "/usage/faults/",
    "/utilization/",
    "/system/",
    "/search/?q=train",
    "/account/tokens/",
    "/account/password/",
    "/account/users/",
    "/account/roles/",
    "/account/notifications/",
    "/api/",
)


WITH_TIMES = ("/", "/jobs/", "/jobs/{job}/", "/jobs/{job}/events/", "/usage/pods/", "/system/")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_page_breaks_a_rule_of_accessibility(
    transactional_db: None, plain_http: None, django_user_model: Any, width: int, scheme: str
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    job = _history()
    month = f"{timezone.now():%Y-%m}"
    make_month(Month.parse(month), timezone.now(), usage_zone())
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    with live_server() as address, page_of(address, cookie, width) as page:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = [
            line
            for path in PAGES
            for line in axe_violations(page, path.format(job=job, month=month))
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_times_of_the_browsers_zone_break_no_rule_either(
    transactional_db: None, plain_http: None, django_user_model: Any, width: int, scheme: str
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    job = _history()
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    with (
        live_server() as address,
        page_of(address, cookie, width, zone="Australia/Adelaide") as page,
    ):
        page.add_init_script("localStorage.setItem('zone', 'local')")
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = []
        for path in WITH_TIMES:
            found += axe_violations(page, path.format(job=job))
            assert page.locator("[data-zone-switch]").inner_text() == "Local"
            assert page.locator("[data-zone-note]").is_visible()
    assert not found, "\n".join(found)


def _history() -> str:
    """A job that failed, one that waits, one that runs; return the UID of the failed one."""
    now = timezone.now()
    failed = jobhistory.job(
        status="Failed",
        reason="OOMKilled",
        completed_at=now,
        created_at=now - dt.timedelta(minutes=5),
    )
    jobhistory.attempt(failed, message="Out of memory", log="a line", ended_at=now, exit_code=137)
    jobhistory.pod(failed, phase="Failed", exit_code=137, finished_at=now)
    jobhistory.pod(failed, "launcher", finished_at=now)
    jobhistory.partition(failed, released_at=now)
    jobhistory.transition(failed, "Failed", 300, "OOMKilled")
    jobhistory.job("waits", status="Pending", reason="NoCapacity", message="No room.")
    runs = jobhistory.job("runs")
    jobhistory.pod(runs)
    jobhistory.partition(runs)
    return failed.uid
