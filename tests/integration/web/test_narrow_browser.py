"""Layout with little room: on a phone and a tablet, on paper, in the header of a desktop."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.template.loader import render_to_string
from django.utils import timezone

from dashboard import components, fleettable
from dashboard.components import DOWN, UNKNOWN, UP, Component
from dashboard.fleetmap import FILLS
from ipuhub.web.cells import make_cells
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.builders.fleetmaps import NOW, controller, draw
from tests.builders.lifetimes import store_pod
from tests.builders.rates import store_rate
from tests.integration.web.livepages import page_of
from tests.integration.web.test_jobs_browser import PHONE

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@pytest.fixture
def cookie(transactional_db: None, admin: User) -> str:
    del transactional_db
    return signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_the_header_of_a_desk_says_in_full_how_many_components_are_up(
    address: str, cookie: str, unknown: int
) -> None:
    """Not cut off; which parts are not known is read out, and its title has it."""
    all_of_them = [
        Component(f"V-IPU agent {n}", UNKNOWN if n < unknown else UP, "") for n in range(12)
    ]
    _judge_header(address, cookie, all_of_them)


@pytest.mark.parametrize(
    "names",
    [
        ["V-IPU controller vipu-a.example:8090"],
        [f"V-IPU {kind} v{n}:8090" for kind in ("controller", "agents of") for n in range(512)],
        ["Kubernetes API", "IPU Operator", "Webhooks"],
        ["Webhooks", *(f"V-IPU agents of v{n}.vipu.svc:8090" for n in range(512))],
        ["M" * 60],
    ],
)
def test_the_header_of_a_desk_says_in_full_who_is_down(
    address: str, cookie: str, names: list[str]
) -> None:
    down = [
        Component(name, DOWN, "", absent=("ag0", "ag1") if "agents" in name else ())
        for name in names
    ]
    _judge_header(address, cookie, down)


def _judge_header(address: str, cookie: str, found: list[Component]) -> None:
    state, sentence = components.summary(found)
    brief, _, more = sentence.partition(";")
    html = render_to_string("_health.html", {"state": state, "brief": brief, "more": more})
    with page_of(address, cookie, 1440) as page:
        page.goto("/jobs/")
        page.locator('#health[class*=" is-"]').wait_for()
        page.evaluate("(html) => { document.getElementById('health').outerHTML = html; }", html)
        summary = page.locator("#health .sentence")
        needs, has = summary.evaluate("(text) => [text.scrollWidth, text.clientWidth]")
        assert needs <= has
        assert page.locator("#health").get_attribute("title") == sentence
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440


def test_the_names_of_domains_of_the_map_take_one_line(address: str, cookie: str) -> None:
    """Names with two digits, too."""
    context = {"map": draw(controller(machines=256)), "page": "overview", "fills": FILLS}
    html = render_to_string("fleet/_map.html", context | {"fill": FILLS[0], "now": NOW})
    with page_of(address, cookie, 1440) as page:
        page.goto("/")
        page.evaluate("(html) => { document.querySelector('.fleet').outerHTML = html; }", html)
        names = page.locator(".overview-grid .domain-name")
        assert names.count() == 16
        assert names.evaluate_all(LINES_OF_WORDS) == [1] * 16
        assert not any(names.evaluate_all(CUT))


LINES_OF_WORDS = """(all) => all.map((name) => {
  const range = document.createRange();
  range.selectNodeContents(name);
  return range.getClientRects().length;
})"""
CUT = "(all) => all.map((name) => name.scrollWidth > name.clientWidth)"
MEASURED = """() => ({
  page: document.documentElement.scrollHeight,
  wide: document.documentElement.scrollWidth,
  table: document.querySelector(".usage-table").offsetHeight,
})"""
SHOWN = """(row) => [...row.cells].filter((cell) => cell.offsetHeight).map((c) => c.dataset.label)
  .filter((label) => label !== "Change")"""


def test_usage_takes_two_lines_a_row_on_a_phone(address: str, cookie: str) -> None:
    """Name and chosen measure, then its share; fifty lines in four screens."""
    now = timezone.now()
    for number in range(60):
        store_pod(
            f"{now - timedelta(minutes=9):%Y-%m-%dT%H:%M}",
            group=f"a-group-with-a-long-name-{number}",
        )
    with page_of(address, cookie, 390) as page:
        page.goto("/usage/")
        rows = page.locator(".usage-table tbody tr")
        assert rows.count() == 50
        found = page.evaluate(MEASURED)
        assert found["table"] <= 4 * PHONE
        assert found["wide"] <= 390
        assert rows.first.evaluate(SHOWN) == ["Group", "Share", "Pod IPU-hours"]
        page.goto("/usage/?measure=cpu_core_hours")
        assert rows.first.evaluate(SHOWN) == ["Group", "Share", "CPU core-hours"]


def test_usage_of_eight_groups_takes_at_most_three_screens_of_a_phone(
    address: str, cookie: str
) -> None:
    now = timezone.now()
    for number in range(8):
        store_pod(f"{now - timedelta(minutes=9):%Y-%m-%dT%H:%M}", group=f"group-{number}", ipus=1)
    with page_of(address, cookie, 390) as page:
        page.goto("/usage/")
        page.locator(".usage-legend").wait_for()
        assert page.evaluate(MEASURED)["page"] <= 3 * PHONE


WRONG_CHOICES = """() => {
  const heads = [...document.querySelectorAll("thead th")].filter((head) => head.offsetWidth)
    .map((head) => head.dataset.column);
  return [...document.querySelectorAll("details.columns label")].filter((label) => {
    const mark = label.querySelector("span");
    const isHidden = mark !== null && getComputedStyle(mark).display !== "none";
    return heads.includes(label.textContent.replace("no room", "").trim()) === isHidden;
  }).map((label) => label.textContent);
}"""


@pytest.mark.parametrize("width", [768, 1024, 1440])
def test_lists_with_costs_need_no_scrolling_sideways(address: str, cookie: str, width: int) -> None:
    """At the widths of tablets and desks; names, sizes and times are as long as usual."""
    store_rate("partition-ipu", "1.25")
    created = timezone.now() - timedelta(hours=30)
    held = {"reserved_at": created, "released_at": created + timedelta(hours=5, minutes=42)}
    for number in range(3):
        job = jobhistory.job(
            f"enformer-finetune-0206{number}",
            "sample-genomics",
            group="life-science",
            user="kubernetes-admin",
            status="Failed",
            message="IPUJob has failed: exit code 1 of the launcher, after three restarts.",
            created_at=created,
            completed_at=held["released_at"],
            ipus=16,
        )
        jobhistory.partition(job, size=16, **held)
        jobhistory.pod(
            job,
            group="life-science",
            micro_ipus=16 * 10**6,
            scheduled_at=created,
            finished_at=held["released_at"],
        )
    with page_of(address, cookie, width) as page:
        for path, columns in (
            ("/jobs/", {"State", "Job", "Namespace", "User", "IPUs", "Created", "Cost"}),
            (
                "/partitions/",
                {"State", "Partition", "Namespace", "Job", "IPUs", "Reserved", "Released", "Cost"},
            ),
            ("/usage/", {"Group", "Share", "Pod IPU-hours", "Cost"}),
            ("/usage/?by=user&measure=cpu_core_hours", {"User", "Share", "CPU core-hours", "Cost"}),
        ):
            page.goto(path)
            table = page.locator("table.card-table").first
            needs, has = table.evaluate(
                "(table) => [table.parentElement.scrollWidth, table.parentElement.clientWidth]"
            )
            assert needs <= has, path
            labels = table.locator("tbody tr").first.evaluate(SHOWN)
            assert columns <= set(labels), (path, labels)
            assert page.evaluate(WRONG_CHOICES) == [], path  # it says which have no room
            if every := page.locator("details.columns a").evaluate_all("(all) => all[0]?.href"):
                page.goto(every)
                heads = page.locator("thead th")
                assert heads.evaluate_all("(all) => all.every((head) => head.offsetWidth)")


CARDS = """(grid) => [...grid.querySelectorAll(".card")]
  .map((card) => [card.getBoundingClientRect().top, card.querySelector("h2").textContent])
  .sort((one, two) => one[0] - two[0]).map((each) => each[1])"""
ENDS = """(grid) => [...grid.children]
  .map((stack) => stack.lastElementChild.getBoundingClientRect().bottom)"""


MANY_WORDS = "cordoned by an administrator: its cables are changed until Monday"


def ipus_with_long_names(note: str) -> str:
    """The IPU table where every name takes as much room as names take, with a note or none."""
    job = SimpleNamespace(
        name="enformer-finetune-020611",
        namespace="sample-genomics",
        group="life-science-research",
        user="kubernetes-admin",
        workers=16,
    )
    row = SimpleNamespace(
        controller="vipu-controller-of-rack-12.vipu-system.svc:8090",
        machine="ipu-pod64-machine-07",
        position=63,
        state="outside",
        job=job,
        job_uid="uid",
        partition="p-enformer-finetune-020611-0",
        since=timezone.now() - timedelta(days=12, hours=5),
        note=note,
    )
    columns = [each for each in fleettable.COLUMNS if each.kind != "export"]
    columns = [each for each in columns if note or not each.sparse]
    heads = [(each.label, each.kind) for each in columns]
    cells = [make_cells(columns, row)]
    return render_to_string(
        "_fleettable.html", {"heads": heads, "cells": cells, "total": 1, "now": timezone.now()}
    )


NOTE = """(table) => [table.parentElement.scrollWidth - table.parentElement.clientWidth,
  table.querySelector("td.brief").clientWidth]"""
NAMESPACE_ROOM = """(table) => {
  const name = table.querySelector("td[data-label=Namespace] > *");
  return [table.parentElement.scrollWidth - table.parentElement.clientWidth,
    name.scrollWidth - name.clientWidth];
}"""
UNTITLED = """(table) => [...table.querySelectorAll("td *")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflow
    === "hidden" && !each.closest("[title]") && !each.querySelector("[title]"))
  .map((each) => each.outerHTML)"""
LINES = """(list) => Object.values(Object.groupBy([...list.children],
  (cell) => cell.getBoundingClientRect().top)).map((line) => [
    line.length, Math.round(line.at(-1).getBoundingClientRect().right)])"""


def fits_of(count: int) -> str:
    """The cells of `Fits now` for so many sizes."""
    sizes = [SimpleNamespace(kind="now", size=2**number, count=1) for number in range(count)]
    return render_to_string("fleet/_fits.html", {"map": SimpleNamespace(fits=sizes)})


def test_narrow_overview_shows_what_is_now_before_what_was(address: str, cookie: str) -> None:
    """The queue before the day, the day before what ended; a desk has two columns that end on one
    line."""
    with page_of(address, cookie, 390) as page:
        page.goto("/")
        grid = page.locator(".overview-grid")
        found = grid.evaluate(CARDS)
        assert found[:2] == ["Fleet", "Queue"]
        assert found[-2:] == ["Last 24 hours", "Ended last"]
        for count in range(2, 15):  # each line of "Fits now" is full, and no cell stands alone
            grid.evaluate("(grid, html) => { grid.innerHTML = html; }", fits_of(count))
            lines = grid.locator(".fits").evaluate(LINES)
            assert min(cells for cells, _ in lines) > 1, (count, lines)
            assert len({right for _, right in lines}) == 1, (count, lines)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
    with page_of(address, cookie, 1440) as page:
        page.goto("/")
        left, right = page.locator(".overview-grid").evaluate(ENDS)
        assert left >= right
        fill = "(e, html) => { e.innerHTML = html; }"
        page.locator("#live").first.evaluate(fill, ipus_with_long_names(MANY_WORDS))
        hidden, room = page.locator(".list-of-ipu").evaluate(NOTE)
        assert (hidden, room >= 150) == (0, True), "its note is cut"
        assert page.locator(".list-of-ipu").evaluate(UNTITLED) == []
        page.locator("#live").first.evaluate(fill, ipus_with_long_names(""))
        assert page.locator(".list-of-ipu").evaluate(NAMESPACE_ROOM) == [0, 0]


def test_paper_has_no_page_with_little_on_it(address: str, cookie: str) -> None:
    """The overview fits on one page, and a wide table stands on the page of its heading."""
    jobhistory.job("bert")
    with page_of(address, cookie, 1440) as page:
        for path in ("/", "/jobs/", "/partitions/"):
            page.goto(path)
            printed = page.pdf(format="A4", prefer_css_page_size=True)
            assert printed.count(b"/Type /Page\n") == 1, path
