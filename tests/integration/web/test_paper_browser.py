"""Every page on paper: title, month or days, time, heads on each sheet, whole columns and rows,
nothing to click."""

from __future__ import annotations

import datetime as dt
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.builders.everypage import (
    jobs_of_each_kind,
    month_with_report,
    rows_of_administration,
)
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.fakes.printed import words_of_pages
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from playwright.sync_api import Page

PAGES: Final = (
    "/",
    "/fleet/",
    "/fleet/machines/v1:8090/ag0/",
    "/jobs/{uid}/",
    "/jobs/{uid}/logs/",
    "/jobs/{uid}/pods/",
    "/jobs/{uid}/events/",
    "/jobs/{uid}/usage/",
    "/jobs/{uid}/yaml/",
    "/usage/reports/{month}/statement/?group=life-science-1",
    "/help/",
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
MANY_SHEETS: Final = {"/jobs/", "/usage/pods/", "/account/users/", "/audit/"}
SAYS: Final = {
    "/usage/": "Usage in {now:%B %Y}",
    "/utilization/": "Utilization in {now:%B %Y}",
    "/usage/reports/{month}/groups/": "Groups in {month}",
    "/usage/reports/{month}/statement/?group=life-science-1": "Statement {month}: life-science-1",
}
"""Titles with the month that the page is about."""
PORTRAIT, LANDSCAPE = 703, 1032
"""CSS pixels between the margins of A4."""
IS_WIDE: Final = "() => getComputedStyle(document.body).page === 'wide'"
TO_CLICK: Final = """() => [...document.querySelectorAll(
    "header.navbar, nav, button, .btn, select, input:not([type=hidden]), textarea, summary, form,"
    + "td a[download], [role=group] a, .card-header > a")]
  .filter((each) => each.checkVisibility({visibilityProperty: true}) && each.offsetWidth > 1
    && !each.closest(".filters") && !each.closest("details[open]"))
  .map((each) => each.outerHTML.slice(0, 120))"""
CUT: Final = """() => [...document.querySelectorAll("main th, main td, main h1, main h2, main p")]
  .filter((each) => each.offsetWidth > 1 && !each.closest(".visually-hidden")
    && (each.getBoundingClientRect().right > innerWidth + 1
    || each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible"))
  .map((each) => each.outerHTML.slice(0, 160))"""
BADGES: Final = """() => [...document.querySelectorAll("main .badge")].filter((each) => {
  const style = getComputedStyle(each);
  return style.color !== "rgb(0, 0, 0)" || style.overflow === "hidden"
    && each.clientHeight < 1.2 * parseFloat(style.fontSize);
}).map((each) => each.outerHTML.slice(0, 120))"""
TABLES: Final = """() => [...document.querySelectorAll("main table")]
  .filter((table) => table.tHead && table.tHead.offsetHeight > 1 && table.checkVisibility())
  .map((table) => [[...table.tHead.rows], [...table.tBodies].flatMap((body) => [...body.rows])]
    .map((rows) => rows.map((row) => [...row.cells]
      .filter((each) => each.offsetWidth > 1 && !each.querySelector("time, .visually-hidden"))
      .map((each) => each.innerText.replace(/\\s+/g, "")))))"""
PAINT: Final = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const seen = {};
  const parts = (colour) => seen[colour] ??= (() => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  })();
  const linear = (part) => (part <= 10 ? part / 3294.6 : ((part / 255 + .055) / 1.055) ** 2.4);
  const isFaint = (colour) => {
    const [red, green, blue] = parts(colour).map(linear);
    return 1.05 / (.2126 * red + .7152 * green + .0722 * blue + .05) < 4.5;
  };
  const isLost = (look) => {
    const [red, green, blue, alpha] = parts(look.backgroundColor);
    const isColoured = alpha > 0 && Math.max(red, green, blue) - Math.min(red, green, blue) > 24;
    return isColoured && look.printColorAdjust !== "exact";
  };
  const all = [...document.querySelectorAll("main *")]
    .filter((each) => each.checkVisibility({ visibilityProperty: true }) && each.offsetWidth > 1);
  const saysWords = (each) => [...each.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  const { backgroundColor } = getComputedStyle(document.body);
  return [
    ...(parts(backgroundColor).join() === "255,255,255,255" ? [] : [`page ${backgroundColor}`]),
    ...all.filter((each) => saysWords(each) && isFaint(getComputedStyle(each).color))
      .map((each) => `faint ${getComputedStyle(each).color} ${each.outerHTML.slice(0, 100)}`),
    ...all
      .filter((each) => ["", "::before"].some((part) => isLost(getComputedStyle(each, part))))
      .map((each) => `without its colour: ${each.outerHTML.slice(0, 100)}`),
  ];
}"""
"""Of a dark page, too, paper is white, words on it are dark, and coloured parts keep theirs."""
NARROW: Final = """() => [...document.querySelectorAll(".overview-grid .card")]
  .filter((card) => card.offsetWidth < document.querySelector(".figures").offsetWidth - 1)
  .map((card) => card.textContent.trim().slice(0, 40))"""
"""Names of the overview have no room in half a sheet."""
EDGES: Final = """() => {
  const inner = (each) => each.getBoundingClientRect().left
    + parseFloat(getComputedStyle(each).paddingLeft);
  const parts = ":scope > .card-body, :scope > .card-footer, :scope > .table-responsive > .table";
  return [...document.querySelectorAll("main .card")].flatMap((card) => {
    const head = card.querySelector(":scope > .card-header");
    if (!head?.checkVisibility()) return [];
    return [...card.querySelectorAll(parts)].filter((part) => part.checkVisibility())
      .map((part) => part.rows ? part.rows[0].cells[0] : part)
      .filter((part) => Math.abs(inner(part) - inner(head)) > 1)
      .map((part) => `${head.textContent.trim()} at ${inner(head)}, below it ${inner(part)}`);
  });
}"""
"""A card has no frame on paper, so its head and what is below it begin at one edge."""
HEADS: Final = """() => [...document.querySelectorAll("main thead")]
  .filter((head) => head.offsetHeight > 1 && head.checkVisibility())
  .map((head) => getComputedStyle(head).display)"""


@pytest.fixture
def cookie(transactional_db: None, admin: User, django_user_model: type[User]) -> str:
    """A signed-in administrator of a busy site: more rows than a page has, names as long as
    usual, prices."""
    rows_of_administration(admin, 50)
    store_rate("cpu", "1.25")
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


def test_every_page_prints_whole(address: str, cookie: str) -> None:
    month, uid = month_with_report(), jobs_of_each_kind().uid
    wrong: list[str] = []
    with page_of(address, cookie, 1440, wanted=("status of 400", "status of 503")) as page:
        for path in PAGES:
            page.emulate_media(media="screen", color_scheme="dark")
            page.set_viewport_size({"width": 1440, "height": 860})
            page.goto(path.format(month=month, uid=uid))
            page.emulate_media(media="print")
            width = LANDSCAPE if page.evaluate(IS_WIDE) else PORTRAIT
            page.set_viewport_size({"width": width, "height": 860})
            box = page.locator("h1").first.bounding_box()
            if not box or box["width"] <= 20:
                wrong.append(f"{path}: no title")
            if not page.get_by_text("As of 20").is_visible():
                wrong.append(f"{path}: no time")
            wrong += [f"{path}: paint: {each}" for each in page.evaluate(PAINT)]
            wrong += [f"{path}: to click: {each}" for each in page.evaluate(TO_CLICK)]
            tokens = page.locator("td.tokens details .granted")
            if tokens.count() and not tokens.last.is_visible():
                wrong.append(f"{path}: folded tokens")
            wrong += [f"{path}: cut: {each}" for each in page.evaluate(CUT)]
            wrong += [f"{path}: half a sheet: {each}" for each in page.evaluate(NARROW)]
            wrong += [f"{path}: edge: {each}" for each in page.evaluate(EDGES)]
            heads = {*page.evaluate(HEADS)} - {"table-header-group"}
            wrong += [f"{path}: head of a table: {each}" for each in heads]
            wrong += [f"{path}: letters of a badge: {each}" for each in page.evaluate(BADGES)]
            title = SAYS.get(path, "").format(month=month, now=timezone.now())
            wrong += [f"{path}: {each}" for each in _faults_of_sheets(page, path, title)]
    assert wrong == [], "\n".join(wrong)


def _faults_of_sheets(page: Page, path: str, title: str) -> Iterator[str]:
    """The faults of the sheets that Chromium prints."""
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    if folder := os.environ.get("SCREENSHOTS"):  # for a person to look at
        name = "".join(c if c.isalnum() else "-" for c in path.strip("/"))
        (Path(folder) / f"{name}.pdf").write_bytes(printed)
    sheets = words_of_pages(printed)
    if "".join(title.split()) not in sheets[0]:
        yield f"the first sheet does not say {title!r}: {sheets[0][:80]}"
    if path in MANY_SHEETS and len(sheets) == 1:
        yield "only one sheet"
    for heads, rows in page.evaluate(TABLES):
        titles = list(chain(*heads))
        for row in rows:
            found = [sheet for sheet in sheets if all(cell in sheet for cell in row)]
            if not found:
                yield f"no sheet has this row whole: {row}"
            elif not any(all(each in sheet for each in titles) for sheet in found):
                yield f"no heads above {row}"
