"""Small things that make a page look unfinished: as Chromium lays it out."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest
from django.conf import settings as django_settings
from django.template.loader import render_to_string
from django.utils import timezone

from ipuhub.models import AuditEntry, WatchCheckpoint
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.builders.everypage import jobs_of_each_kind, month_with_report, rows_of_administration
from tests.builders.fleetmaps import NOW, controller, draw, waiter
from tests.builders.lifetimes import store_pod
from tests.builders.rates import store_rate
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

BORDERS: Final = """() => [...document.querySelectorAll("main .card-table tbody tr:last-child")]
  .map((row) => [...row.cells].map((cell) => getComputedStyle(cell).borderBottomWidth))"""
BROKEN: Final = """() => [...document.querySelectorAll("time[data-age], .stepper li > span")]
  .filter((each) => each.getClientRects().length > 1).map((each) => each.outerHTML)"""
LONG_OWNER: Final = """(figure) => {
  figure.querySelector(".h1").innerHTML = '4 <span class="text-secondary fs-3">'
    + "IPUs of kubernetes-administrators-of-a-whole-site and others</span>";
  return [".h1", ".fs-3"].map((part) => figure.querySelector(part))
    .map((each) => each.scrollWidth > each.clientWidth);
}"""
TORN: Final = """() => [...document.querySelectorAll("td.text-break")].filter((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return /^\\w+$/.test(cell.textContent) && range.getClientRects().length > 1;
}).map((cell) => cell.textContent)"""
WIDER: Final = """() => [...document.querySelectorAll(".table-responsive")]
  .map((each) => each.scrollWidth - each.clientWidth)"""
OVERLAPS: Final = """() => [...document.querySelectorAll(".fleet-queue tbody tr")].map((row) => {
  const [, job, , ipus] = [...row.cells].map((cell) => cell.getBoundingClientRect());
  const { right } = row.querySelector(".who").getBoundingClientRect();
  return [right > job.right + 1, job.right > ipus.left + 1];
})"""
HALO: Final = """(label) => {
  const { paintOrder, stroke } = getComputedStyle(label);
  return [paintOrder.split(" ")[0], stroke];
}"""

APART: Final = """(width) => [...document.querySelectorAll(".figure")].flatMap((each) => {
  each.style.width = `${width}px`;
  const walk = document.createTreeWalker(each, NodeFilter.SHOW_TEXT), places = [];
  for (let node; node = walk.nextNode();)
    for (let at = 0; at < node.length; at += 1) places.push([node, at]);
  const text = places.map(([node, at]) => node.data[at]).join("");
  return [...text.matchAll(/\\d\\s+(%|IPUs?\\b|IPU-h|EUR|min\\b|[shd]\\b|[A-Z][a-z]{2}\\b)/g)]
    .filter(({ index, 0: found }) => {
      const range = document.createRange();
      range.setStart(...places[index]);
      range.setEnd(...places[index + found.length - 1]);
      const [first, ...others] = [...range.getClientRects()].filter((box) => box.width);
      return others.some((box) => box.top >= first.bottom - 2);
    }).map((found) => found[0]);
})"""
"""Amounts of a figure without room whose unit is on the next line."""
BARE: Final = """() => [...document.querySelectorAll("main td time")].filter((time) => {
  const cell = time.closest("td"), head = getComputedStyle(cell, "::before").content;
  const column = cell.closest("table").tHead?.rows[0].cells[cell.cellIndex];
  const label = head !== "none" || column?.getClientRects().length ? column.innerText : "";
  const [before, after] = ["::before", "::after"]
    .map((part) => getComputedStyle(time, part).content.replace(/^"|"$|none/g, ""));
  return time.getClientRects().length && /^\\d+ (s|min|h|d)\\b/.test(time.textContent)
    && !/^(Age|Duration|Waits for|Held for)/.test(label)
    && !/\\bago\\b|\\bfor\\b/.test(before + cell.textContent + after);
}).map((time) => `${location.pathname} ${time.closest("td").outerHTML}`)"""
"""Ages that read as durations: not under a head that calls them ages, and without "ago"."""
HELD: Final = """() => document.querySelectorAll("td[data-label=Age]")
  .forEach((cell) => { cell.dataset.label = "Held for"; })"""
"""The table of a fleet, which needs one."""
WITH_AGES: Final = (
    "/jobs/",
    "/partitions/",
    "/partitions/stats/",
    "/usage/faults/",
    "/audit/",
    "/system/",
    "/account/notifications/",
    "/account/roles/",
    "/account/tokens/",
    "/account/users/",
)


@pytest.fixture
def cookie(transactional_db: None, admin: User) -> str:
    return signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value


@pytest.mark.parametrize("width", [1440, 390])
def test_tabs_stay_where_they_are_on_pages_with_and_without_an_age(
    address: str, cookie: str, width: int
) -> None:
    WatchCheckpoint.objects.create(name="pods", position_at=timezone.now())
    tops = {}
    with page_of(address, cookie, width) as page:
        for path in ("/usage/", "/usage/gaps/"):
            page.goto(path)
            tops[path, page.locator("#as-of").count()] = page.evaluate(
                "document.querySelector('.section-tabs').getBoundingClientRect().top"
            )
    assert [age for _, age in tops] == [1, 0]
    assert len({*tops.values()}) == 1, tops


def test_no_line_is_left_below_the_head_of_the_last_row(address: str, cookie: str) -> None:
    month = month_with_report()
    with page_of(address, cookie, 1440) as page:
        page.goto(f"/usage/reports/{month}/close/")
        rows = page.evaluate(BORDERS)
        assert len(rows[0]) == 2
        assert [row for row in rows if len({*row}) > 1] == []


def test_a_duration_keeps_its_number_and_unit_on_one_line_of_a_phone(
    address: str, cookie: str
) -> None:
    job = jobhistory.job(created_at=timezone.now() - dt.timedelta(minutes=6, seconds=5))
    jobhistory.pod(job)
    jobhistory.partition(job)
    with page_of(address, cookie, 390) as page:
        for width in (320, 360, 375, 390):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(f"/jobs/{job.uid}/")
            assert page.locator("time[data-age]").count() > 1
            assert page.evaluate(BROKEN) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_owner_is_cut_in_the_size_of_its_own_words(address: str, cookie: str) -> None:
    """The three dots of the number's size look like a part of the number."""
    with page_of(address, cookie, 390) as page:
        page.goto("/")
        assert page.locator(".figure.is-idle").evaluate(LONG_OWNER) == [False, True]


def test_no_line_of_the_axis_runs_through_a_name_of_the_timeline(address: str, cookie: str) -> None:
    uid = jobs_of_each_kind().uid
    with page_of(address, cookie, 1440) as page:
        page.goto(f"/jobs/{uid}/")
        order, colour = page.locator(".timeline .row-label").first.evaluate(HALO)
        card = page.locator(".card:has(.timeline)")
        assert order == "stroke"
        assert colour == card.evaluate("(card) => getComputedStyle(card).backgroundColor")


def test_no_page_on_paper_asks_for_a_click(address: str, cookie: str) -> None:
    store_pod("2026-10-10T00:00", "2026-10-10T01:00")
    month = month_with_report()
    with page_of(address, cookie, 1440) as page:
        page.goto(f"/usage/reports/{month}/groups/")
        hint = page.get_by_text("Select a group")
        assert hint.is_visible()
        page.emulate_media(media="print")
        assert not hint.is_visible()


def test_an_owner_of_a_waiting_job_does_not_lie_over_its_ipus_on_paper(
    address: str, cookie: str
) -> None:
    """Paper cuts no text, because no pointer shows the rest."""
    queue = draw(controller(), queue=(waiter("a" * 50, 8),)).queue
    who = SimpleNamespace(uid="u", name="a" * 63, user="zoe-of-the-weiden@institute." * 4)
    lines = [replace(each, job=SimpleNamespace(**vars(who), namespace="team-a")) for each in queue]
    context = {"map": draw(controller()), "lines": lines, "now": NOW}
    context["map"] = replace(draw(controller()), queue=tuple(lines))
    html = render_to_string("fleet/_queue.html", context)
    with page_of(address, cookie, 703) as page:
        page.goto("/queue/")
        page.evaluate("(html) => { document.querySelector('main').innerHTML = html; }", html)
        page.emulate_media(media="print")
        assert page.evaluate(OVERLAPS) == [[False, False]]


@pytest.mark.parametrize("width", [660, 768, 834])
def test_a_statement_fits_a_tablet_with_whole_names(address: str, cookie: str, width: int) -> None:
    """With amounts as a month has them; users were read as "fari" and "d"."""
    store_rate("ipu", "1.25")
    last = timezone.now().replace(day=1) - dt.timedelta(days=1)
    for component in ("ipujob", "model_deploy"):
        more = {"group": "language", "namespace": "sample-language", "component": component}
        store_pod(f"{last:%Y-%m}-01T00:00", f"{last:%Y-%m}-09T00:00", user="farid", ipus=16, **more)
    month = month_with_report()
    with page_of(address, cookie, width) as page:
        page.goto(f"/usage/reports/{month}/statement/?group=language")
        assert page.locator("td.text-break", has_text="model_deploy").count() == 1
        assert page.evaluate(TORN) == []
        assert max(page.evaluate(WIDER)) <= 0


def test_a_figure_stays_with_its_unit_on_paper(address: str, cookie: str) -> None:
    """Whatever its width; a fifth of a sheet broke "38.1 %" and "104 IPUs"."""
    store_rate("ipu", "1.25")
    now = timezone.now()
    month = SimpleNamespace(
        first=now,
        same_time=now,
        hours=8043,
        earlier_hours=7588,
        change="+6 %",
        cost=SimpleNamespace(amount=10538),
    )
    month.cost.currency = "EUR"
    context = {
        "fleet": SimpleNamespace(free=7, held=25, total=32, share="78.1 %"),
        "map": draw(controller(), queue=(waiter("a", 104),)),
        "month": month,
        "held_share": "38.1 %",
        "sees_all": True,
        "now": NOW,
        "usage_url": "/usage/",
    }
    html = render_to_string("overview/_figures.html", context)
    with page_of(address, cookie, 703) as page:
        page.goto("/queue/")
        page.evaluate("(html) => { document.querySelector('main').innerHTML = html; }", html)
        for media in ("print", "screen"):
            page.emulate_media(media=media)
            for amount in ("78.1 %", "38.1 %", "for 104 IPUs", "10,538 EUR", "8,043 IPU-h", "+6 %"):
                assert page.locator(".figures").get_by_text(amount).count(), amount
            for width in range(96, 200, 4):
                assert (media, width, page.evaluate(APART, width)) == (media, width, [])


@pytest.mark.parametrize("width", [1440, 390])
def test_no_age_reads_as_a_duration(address: str, cookie: str, admin: User, width: int) -> None:
    """Under "Age" it stands alone, as `kubectl get` has it; elsewhere it says "ago"."""
    jobs_of_each_kind()
    rows_of_administration(admin)
    with page_of(address, cookie, width) as page:
        bare = []
        for path in WITH_AGES:
            page.goto(path)
            bare += page.evaluate(BARE)
        page.goto("/audit/")
        page.evaluate(HELD)
        bare += page.evaluate(BARE)
        assert bare == [], "\n".join(bare)


def test_what_made_a_change_is_shown_whole_where_there_is_room(
    address: str, cookie: str, admin: User
) -> None:
    rows_of_administration(admin)
    AuditEntry.objects.update(via="command make_usage_reports")
    with page_of(address, cookie, 1440) as page:
        page.goto("/audit/")
        made_by = page.locator('td[data-label="By"] .long').first
        assert made_by.evaluate("(text) => text.scrollWidth - text.clientWidth") <= 0
        lines = made_by.evaluate(
            "(text) => text.clientHeight / parseFloat(getComputedStyle(text).lineHeight)"
        )
        assert round(lines) == 1
        made_by.evaluate("(text) => { text.textContent = `token ${'report '.repeat(14)}`; }")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440
        assert max(page.evaluate(WIDER)) <= 0
