"""Every page in a real browser as each role sees it, and every form without scripts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.urls import reverse

from dashboard.nav import ENTRIES, entries_for
from ipuhub.roles import ACCOUNTANT, ADMIN, EVERYWHERE, OPERATOR, VIEWER
from jobs.models import JobRecord
from tests.builders.clients import browser as signed_in_client
from tests.builders.everypage import (
    jobs_of_each_kind,
    month_with_report,
    rows_of_administration,
)
from tests.builders.roles import grant
from tests.fakes.longform import IS_LONG, one_in_turn
from tests.integration.web.addresses import page_addresses
from tests.integration.web.exportlinks import Exports
from tests.integration.web.livepages import live_server, page_of
from tests.integration.web.newparts import NewParts
from tests.integration.web.test_jobs_browser import in_thread
from tests.integration.web.test_layout_browser import MOST, NOTE_SHIFTS, PUSH_DOWN

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client
    from playwright.sync_api import Page

    from tests.fakes.background import Cluster, Proxy

ROLES: Final = {
    ADMIN: EVERYWHERE,
    OPERATOR: "team-a",
    ACCOUNTANT: EVERYWHERE,
    VIEWER: "team-a",
}
FEWEST_PAGES: Final = {ADMIN: 35, OPERATOR: 24, ACCOUNTANT: 25, VIEWER: 24}
FEWEST_FILES: Final = {ADMIN: 55, OPERATOR: 38, ACCOUNTANT: 35, VIEWER: 38}
FEWEST_LISTS: Final = {ADMIN: 7, OPERATOR: 5, ACCOUNTANT: 6, VIEWER: 5}
WIDTHS: Final = (1440, 1920, 768, 390, 320)
WITH_CHARTS: Final = ("usage:month", "utilization")
LIVE: Final = ("/", "/queue/", "/fleet/", "/jobs/", "/jobs/uid-team-a-runs/")
TOO_WIDE: Final = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("*")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(
    ".table-responsive, .section-tabs, .main-nav, pre")).slice(0, 3)
  .map((each) => each.outerHTML.slice(0, 120))"""
REACHED: Final = """(links) => links.filter((link) => {
  link.scrollIntoView({ inline: "nearest", block: "nearest" });
  const { left, right, width } = link.getBoundingClientRect();
  return width > 0 && left >= 0 && right <= innerWidth + 1;
}).map((link) => link.getAttribute("href"))"""


def reader_of(role: str) -> User:
    """A user with the role; an administrator is staff."""
    user = get_user_model().objects.create_user("reader", is_staff=role == ADMIN)
    grant(user, role, ROLES[role])
    return user


@pytest.fixture
def known(transactional_db: None, cluster: Cluster, proxy: Proxy) -> dict[str, str]:
    """The arguments of the addresses, after jobs, months and a fleet are there."""
    cluster.add_job("holds", "team-a", launcherStatus="Running", workersStatus={"active": 1})
    proxy.hold("holds", "team-a", 16)
    proxy.hold("elsewhere", "team-b", 4)
    proxy.hold("waits", "team-a", 32)
    uid = jobs_of_each_kind().uid
    return {"uid": uid, "month": month_with_report(), "controller": "v1:8090", "name": "ag0"}


def pages_of(client: Client, known: dict[str, str]) -> dict[str, str]:
    """The addresses of the URL table that answer with a whole page; none may fail."""
    found = {}
    for name, address in page_addresses(**known).items():
        url = f"{address}?group=team-a" if name == "usage:statement" else address
        answer = client.get(url)
        assert answer.status_code < 500, (url, answer.content)
        is_html = answer.get("Content-Type", "").startswith("text/html")
        if answer.status_code == 200 and is_html and "<main" in answer.content.decode():
            found[name] = url
    return found


def assert_fits(page: Page, path: str, widths: list[int], links: list[str]) -> None:
    """In each width nothing is wider than the window, and all of the navigation can be reached."""
    for width in widths:
        page.set_viewport_size({"width": width, "height": 860})
        assert page.evaluate(TOO_WIDE) == [], (path, width)
        assert page.locator(".main-nav a").evaluate_all(REACHED) == links, (path, width)


@pytest.mark.parametrize("role", ROLES)
def test_every_page_of_a_role_fits_and_breaks_nothing(role: str, known: dict[str, str]) -> None:
    """No failure, no complaint of the browser, no breach of the content security policy; the
    navigation is whole."""
    user = reader_of(role)
    rows_of_administration(user)
    client = signed_in_client(user)
    pages = pages_of(client, known)
    assert len(pages) >= FEWEST_PAGES[role], sorted(pages)
    of_admin = {} if role == ADMIN else texts_of_admin(client, user, pages)
    may_open = {each.url_name for each in entries_for(user)}
    links = [reverse(each.url_name) for each in ENTRIES if each.url_name in may_open]
    cookie = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    exports, parts = Exports(), NewParts()
    with live_server() as address, page_of(address, cookie, WIDTHS[0], wanted=()) as page:
        for turn, (name, path) in enumerate(pages.items()):
            answer = page.goto(path)
            assert answer is not None
            assert answer.status == 200, path
            if name in WITH_CHARTS:
                page.wait_for_load_state("networkidle")
            # The pages of an administrator have all parts of the others'.
            widths = one_in_turn(WIDTHS, turn, is_long=IS_LONG or role == ADMIN)
            assert_fits(page, path, widths, links)
            exports.note(page)
            if of_admin:
                parts.judge(page, of_admin[path])
        files = exports.follow(page)
        assert len(files) >= FEWEST_FILES[role], sorted(files)
        assert exports.choose_columns(page) >= FEWEST_LISTS[role]
    assert parts.violations == []


def texts_of_admin(client: Client, user: User, pages: dict[str, str]) -> dict[str, str]:
    """Return what the addresses would answer the same user as an administrator, in HTML."""
    get_user_model().objects.filter(pk=user.pk).update(is_staff=True)
    found = {path: client.get(path).content.decode() for path in pages.values()}
    get_user_model().objects.filter(pk=user.pk).update(is_staff=False)
    return found


FORMS: Final = """() => [...document.forms].filter((form) => form.method !== "dialog")
  .map((form) => ({
    number: [...document.forms].indexOf(form),
    action: new URL(form.getAttribute("action") ?? "", location).pathname,
    submit: form.querySelector("button:not([type=button])")?.textContent.trim() ?? "",
    fields: [...form.elements].filter((each) => each.name && each.offsetWidth).length,
  }))"""
FILL: Final = """(number) => {
  const form = document.forms[number];
  for (const field of form.elements) {
    if (!field.required || field.value) continue;
    field.value = field.pattern || ({ date: "2026-01-01", number: "1" }[field.type] ?? "x");
  }
  form.closest("details")?.setAttribute("open", "");
  for (const box of form.querySelectorAll(".filters-open")) box.checked = true;
}"""
NOT_ALL: Final = ("logout",)
"""Forms that end what the others need."""
REFUSED: Final = {
    ("/account/users/", "Grant"),
    ("/account/notifications/", "Subscribe"),
    ("/partitions/query/", "Check"),
    ("/usage/rates/", "Preview"),
}
"""Forms that want more than any text where they must have one: the page says what."""


def forms_of(page: Page) -> dict[tuple[str, str], dict[str, Any]]:
    """The forms of the page, by where they lead and what their button says."""
    found = page.evaluate(FORMS)
    return {(each["action"], each["submit"]): each for each in found}


def test_every_form_works_without_scripts(known: dict[str, str]) -> None:
    """Each is sent once, with what it needs: a page answers."""
    user = reader_of(ADMIN)
    rows_of_administration(user)
    client = signed_in_client(user)
    pages = pages_of(client, known)
    cookie = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    tried: set[tuple[str, str]] = {(reverse(name), "Sign out") for name in NOT_ALL}
    with live_server() as address, page_of(address, cookie, 390, scripts=False) as page:
        for path in pages.values():
            page.goto(path)
            assert page.evaluate(TOO_WIDE) == [], path
            for key, form in forms_of(page).items():
                if key in tried:
                    continue
                tried.add(key)
                assert_answers(page, path, key, form)
    assert len(tried) > 20, tried
    assert {reverse("jobs:list"), reverse("account-tokens"), reverse("usage:rates")} <= {
        action for action, _ in tried
    }


def assert_answers(page: Page, path: str, key: tuple[str, str], form: dict[str, Any]) -> None:
    """Send a form of a page as a browser without scripts does."""
    page.goto(path)
    form = forms_of(page).get(key, form)
    page.evaluate(FILL, form["number"])
    of_page = page.locator("form").nth(form["number"])
    with page.expect_navigation() as sent:
        button = of_page.locator("button:not([type=button]):visible").first
        if button.count():
            button.click()
        else:  # a single field, as that of the search
            assert form["fields"] == 1, (path, key)
            of_page.locator("input:visible").first.press("Enter")
    answer = sent.value
    assert answer is not None
    assert answer.status == (400 if key in REFUSED else 200), (path, key, answer.status)
    assert page.locator("main").count() == 1, (path, key)


TWO_FRAMES: Final = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
)
"""By then the browser has told of what moved."""


def test_nothing_jumps_when_a_part_changes(
    known: dict[str, str], cluster: Cluster, proxy: Proxy
) -> None:
    """A job that starts, ends or gets a longer message changes its own words and colours."""
    user = reader_of(ADMIN)
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    found = {}
    with live_server() as address, page_of(address, cookie, WIDTHS[0]) as page:
        page.add_init_script(NOTE_SHIFTS)
        for number, path in enumerate(LIVE):
            page.goto(path)
            page.locator("#health[class*=' is-']").wait_for()
            etag = page.locator("[data-live]").first.get_attribute("data-etag")
            proxy.hold(f"new-{number}", "team-a", 1)
            in_thread(partial(change_job, f"The node went away for the {number}. time. " * 4))
            page.wait_for_function(
                "(old) => document.querySelector('[data-live]').dataset.etag !== old", arg=etag
            )
            if path == "/jobs/":  # tinted, in its place
                page.locator(
                    "tr.is-news", has_text=f"The node went away for the {number}."
                ).wait_for()
            page.evaluate(TWO_FRAMES)
            shifts = page.evaluate("window.shifts")
            if sum(value for value, _ in shifts) > MOST:
                found[path] = shifts
        page.evaluate(PUSH_DOWN)
        page.wait_for_function("() => window.shifts.some(([value]) => value > 0.05)")  # it measures
    assert found == {}


def change_job(message: str) -> None:
    JobRecord.objects.filter(name="runs").update(status="Restarting", message=message)
