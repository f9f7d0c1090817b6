"""Every list on paper: title, time, heads on each page, whole columns, nothing to click."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.builders.everypage import month_with_report, rows_of_administration
from tests.builders.rates import rate
from tests.builders.roles import grant
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LISTS: Final = (
    "/jobs/",
    "/partitions/",
    "/queue/",
    "/usage/",
    "/usage/?by=user&measure=cpu_core_hours",
    "/usage/pods/",
    "/usage/gaps/",
    "/usage/faults/",
    "/usage/rates/",
    "/usage/reports/",
    "/usage/reports/{month}/groups/",
    "/utilization/",
    "/fleet/table/",
    "/system/",
    "/audit/",
    "/account/users/",
    "/account/roles/",
    "/account/tokens/",
    "/account/notifications/",
    "/search/?q=enformer",
)
PORTRAIT, LANDSCAPE = 703, 1032
"""CSS pixels between the margins of A4."""
IS_WIDE: Final = "() => getComputedStyle(document.body).page === 'wide'"
TO_CLICK: Final = """() => [...document.querySelectorAll(
    "header.navbar, nav, button, .btn, select, input:not([type=hidden]), textarea, summary, form,"
    + "td a[download], [role=group] a")]
  .filter((each) => each.checkVisibility({visibilityProperty: true}) && each.offsetWidth > 1
    && !each.closest(".filters") && !each.closest("details[open]"))
  .map((each) => each.outerHTML.slice(0, 120))"""
CUT: Final = """() => [...document.querySelectorAll("main th, main td, main h1, main h2, main p")]
  .filter((each) => each.offsetWidth > 1 && (each.getBoundingClientRect().right > innerWidth + 1
    || each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible"))
  .map((each) => each.outerHTML.slice(0, 160))"""
BADGES: Final = """() => [...document.querySelectorAll("main .badge")].filter((each) => {
  const style = getComputedStyle(each);
  return style.color !== "rgb(0, 0, 0)" || style.overflow === "hidden"
    && each.clientHeight < 1.2 * parseFloat(style.fontSize);
}).map((each) => each.outerHTML.slice(0, 120))"""
HEADS: Final = """() => [...document.querySelectorAll("main thead")]
  .filter((head) => head.checkVisibility()).map((head) => getComputedStyle(head).display)"""


@pytest.fixture
def cookie(transactional_db: None, admin: User, django_user_model: type[User]) -> str:
    """A signed-in administrator of a busy site: more rows than a page has, names as long as
    usual, prices."""
    rows_of_administration(admin, 50)
    rate("cpu", "1.25")
    now = timezone.now()
    for number in range(60):
        user = django_user_model.objects.create_user(f"kubernetes-user-{number:02d}")
        grant(user, "viewer", f"sample-genomics-{number}")
        created = now - dt.timedelta(days=number, hours=30)
        ended = created + dt.timedelta(hours=5, minutes=42)
        job = jobhistory.job(
            f"enformer-finetune-0206{number}",
            "sample-genomics",
            group=f"life-science-{number % 12}",
            user=f"kubernetes-user-{number:02d}",
            status="Failed" if number % 3 else "Pending",
            reason="OOMKilled" if number % 3 else "NoCapacity",
            message="IPUJob has failed: exit code 1 of the launcher, after three restarts.",
            created_at=created,
            completed_at=ended if number % 3 else None,
            ipus=16,
        )
        held = {"reserved_at": created, "released_at": ended}
        jobhistory.partition(job, size=16, user=job.user, **held)
        jobhistory.pod(
            job,
            user=job.user,
            micro_ipus=16 * 10**6,
            scheduled_at=created,
            finished_at=ended,
        )
    return signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value


def test_every_list_prints_whole(address: str, cookie: str) -> None:
    month = month_with_report()
    wrong: list[str] = []
    with page_of(address, cookie, 1440, wanted=("status of 400", "status of 503")) as page:
        for path in LISTS:
            page.emulate_media(media="screen")
            page.set_viewport_size({"width": 1440, "height": 860})
            page.goto(path.format(month=month))
            page.emulate_media(media="print")
            width = LANDSCAPE if page.evaluate(IS_WIDE) else PORTRAIT
            page.set_viewport_size({"width": width, "height": 860})
            title = page.locator("h1").first.bounding_box()
            if not title or title["width"] <= 20:
                wrong.append(f"{path}: no title")
            if not page.get_by_text("As of 20").is_visible():
                wrong.append(f"{path}: no time")
            wrong += [f"{path}: to click: {each}" for each in page.evaluate(TO_CLICK)]
            wrong += [f"{path}: cut: {each}" for each in page.evaluate(CUT)]
            heads = {*page.evaluate(HEADS)} - {"table-header-group"}
            wrong += [f"{path}: head of a table: {each}" for each in heads]
            wrong += [f"{path}: letters of a badge: {each}" for each in page.evaluate(BADGES)]
            if folder := os.environ.get("SCREENSHOTS"):  # for a person to look at
                name = "".join(c if c.isalnum() else "-" for c in path.strip("/"))
                page.pdf(path=Path(folder) / f"{name}.pdf", format="A4", prefer_css_page_size=True)
    assert wrong == [], "\n".join(wrong)
