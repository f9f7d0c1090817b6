"""Nothing is cut, broken or covered: long names have a title, numbers and heads stay whole."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.builders.everypage import jobs_of_each_kind
from tests.builders.rates import store_rate
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from playwright.sync_api import Page

PAGES = (
    "/",
    "/jobs/",
    "/partitions/",
    "/partitions/stats/",
    "/usage/",
    "/usage/pods/",
    "/utilization/",
    "/usage/reports/",
    "/system/",
    "/queue/",
    "/fleet/",
    "/search/?q=enformer",
)
ONE_LINE = ("/jobs/", "/partitions/")
"""Lists whose rows take one line from a tablet on."""
ROW = 36
CUT = """() => [...document.querySelectorAll("main *")].filter((each) => {
  const style = getComputedStyle(each);
  return each.offsetParent && style.textOverflow === "ellipsis" && style.overflowX === "hidden"
    && each.scrollWidth > each.clientWidth + 1
    && !each.closest("[title]") && !each.querySelector("[title]");
}).map((each) => `cut without a title: ${each.outerHTML.slice(0, 150)}`)"""
# The lines on which a text stands: one for each height at which a part of it begins.
LINES = """const linesOf = (element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  const parts = [...range.getClientRects()].filter((part) => part.width);
  return new Set(parts.map((part) => Math.round(part.bottom)));
};"""
BROKEN = f"""() => {{ {LINES}
  return [...document.querySelectorAll("main td.text-end, main .card-title:is(h2, p)")]
    .filter((each) => each.offsetHeight && !each.querySelector("*") && linesOf(each).size > 1)
    .map((each) => `broken over lines: ${{each.outerHTML.slice(0, 150)}}`);
}}"""
COVERED = """() => [...document.querySelectorAll("main .card-header")].flatMap((head) => {
  const parts = [...head.children].filter((each) => each.offsetWidth > 1);
  return parts.filter((one, n) => parts.slice(n + 1).some((other) => {
    const a = one.getBoundingClientRect(), b = other.getBoundingClientRect();
    return Math.min(a.right, b.right) > Math.max(a.left, b.left) + 1
      && Math.min(a.bottom, b.bottom) > Math.max(a.top, b.top) + 1;
  })).map((each) => `covers another part of its head: ${each.outerHTML.slice(0, 150)}`);
})"""
TALL = f"""() => [...document.querySelectorAll("tbody tr")]
  .filter((row) => row.offsetHeight > {ROW})
  .map((row) => `more than one line: ${{row.textContent}}`)"""

ASIDE = """() => [...document.querySelectorAll(".table-responsive, .main-nav")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.scrollWidth} in ${each.clientWidth}: ${each.outerHTML.slice(0, 120)}`)"""
CHOICES = """() => [...document.querySelectorAll("main select")].filter((each) => {
  const style = getComputedStyle(each), ruler = document.createElement("canvas").getContext("2d");
  ruler.font = style.font;
  const room = each.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return each.offsetHeight && ruler.measureText(each.selectedOptions[0].text).width > room + 1;
}).map((each) => `a chosen value is cut: ${each.outerHTML.slice(0, 150)}`)"""


def faults(page: Page, path: str, width: int) -> list[str]:
    """Return what is wrong with the layout of a page."""
    page.goto(path)
    lines = (TALL,) if path in ONE_LINE and width >= 768 else ()
    checks = (CUT, BROKEN, COVERED, ASIDE, CHOICES, *lines)
    found = [f"{path}: {fault}" for check in checks for fault in page.evaluate(check)]
    if page.evaluate("document.documentElement.scrollWidth") > width:
        found.append(f"{path}: wider than {width}")
    return found


@pytest.fixture
def cookie(transactional_db: None, admin: User) -> str:
    """The session of an administrator who sees jobs and partitions with names of usual length."""
    del transactional_db
    jobs_of_each_kind()
    store_rate("partition-ipu", "1.25")
    created = timezone.now() - timedelta(hours=30)
    for number in range(3):
        job = jobhistory.job(
            f"enformer-finetune-0206{number}",
            "sample-genomics",
            group="life-science",
            user="kubernetes-admin",
            status="Completed",
            created_at=created,
            completed_at=created + timedelta(hours=5),
            ipus=16,
        )
        jobhistory.partition(
            job, size=16, reserved_at=created, released_at=created + timedelta(hours=5)
        )
    return signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_no_text_is_cut_without_a_title_broken_or_covered(
    address: str, cookie: str, width: int
) -> None:
    found = []
    with page_of(address, cookie, width) as page:
        for path in PAGES:
            found += faults(page, path, width)
    assert not found, "\n".join(found)


def test_the_name_of_a_pod_has_the_room_that_the_other_columns_leave(
    address: str, cookie: str
) -> None:
    with page_of(address, cookie, 768) as page:
        page.goto("/usage/pods/")
        names = page.locator('[data-label="Pod"] code')
        names.first.evaluate("(name) => { name.textContent = 'enformer-finetune-02060-worker-0'; }")
        assert names.first.evaluate("(name) => name.scrollWidth <= name.clientWidth")
        names.last.evaluate("(name) => { name.textContent = 'enformer-finetune-'.repeat(6); }")
        assert page.evaluate(ASIDE) == []


SPOILT = """() => {
  const cell = document.querySelector("td.whole > :is(span, a)");
  cell.textContent = "a-name-that-has-no-room ".repeat(9);
  cell.removeAttribute("title");
  Object.assign(cell.style, {
    display: "inline-block", maxWidth: "5rem", overflow: "hidden", textOverflow: "ellipsis",
    whiteSpace: "nowrap",
  });
}"""


def test_the_check_finds_a_name_that_is_cut(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1440) as page:
        page.goto("/jobs/")
        assert page.evaluate(CUT) == []
        page.evaluate(SPOILT)
        assert len(page.evaluate(CUT)) == 1
