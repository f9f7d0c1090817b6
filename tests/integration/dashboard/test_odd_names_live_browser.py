"""Hostile names where the fleet is shown live: map, queue, search, suggestions, toasts, audit."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.utils import timezone

from ipuhub.models import AuditEntry, WatchCheckpoint
from jobs.models import JobRecord
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.builders.oddnames import ODD_NAMES
from tests.fakes.chromium import expect
from tests.integration.web.livepages import live_server, page_of
from tests.integration.web.test_jobs_browser import in_thread
from tests.integration.web.test_odd_names_browser import has_run, text_of_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.fakes.background import Cluster, Proxy

HOLD = ("script", "end of script", "attribute", "single attribute", "right to left", "long", "tab")
"""Whose jobs hold an IPU each; those of the others wait."""


@pytest.fixture
def opened(transactional_db: None, cluster: Cluster, proxy: Proxy) -> Iterator[Page]:
    """A browser of an administrator: each name is a user's, a group's, and a message."""
    now = timezone.now()
    WatchCheckpoint.objects.create(name="ipujobs", position_at=now)
    # Those that wait come last: they keep newer ones from their block.
    in_turn = sorted(ODD_NAMES.items(), key=lambda each: each[0] not in HOLD)
    for number, (what, name) in enumerate(in_turn):
        job = f"job-{number}"
        uid = cluster.add_job(job, "team-a", user=name)
        proxy.hold(job, "team-a", 1 if what in HOLD else 32, uid=uid)
        jobhistory.job(job, uid=uid, user=name, group=name, message=name, status="Pending")
        AuditEntry.objects.create(
            at=now,
            user_name=name,
            kubernetes_user=name,
            action="scale",
            namespace="team-a",
            name=job,
            change={},
            outcome="refused",
            message=name,
        )
    user = get_user_model().objects.create_user("root", is_staff=True)
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    with live_server() as address, page_of(address, cookie, 1280) as page:
        yield page


def assert_said(page: Page, path: str, names: list[str]) -> None:
    page.goto(path)
    text = text_of_document(page)
    for name in names:
        lines = name.replace("\r\n", "\n").replace("\r", "\n")  # HTML has one kind of line end
        assert lines in text or name in text, (path, name)
    assert not has_run(page), path
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280, path


def test_every_name_is_text_on_map_queue_and_audit(opened: Page) -> None:
    holding = [ODD_NAMES[what] for what in HOLD]
    waiting = [name for what, name in ODD_NAMES.items() if what not in HOLD]
    assert_said(opened, "/fleet/?fill=user", holding)
    assert_said(opened, "/fleet/?fill=group", holding)
    assert_said(opened, "/?fill=user", holding)
    assert_said(opened, "/queue/", waiting)
    assert_said(opened, "/audit/", [*ODD_NAMES.values()])


def test_every_name_is_text_in_search_suggestions_and_toasts(opened: Page) -> None:
    for what in HOLD:
        name = ODD_NAMES[what]
        assert_said(opened, "/search/?" + urlencode({"q": name}), [name])
    opened.goto("/jobs/")
    opened.keyboard.press("Control+k")
    opened.keyboard.insert_text(ODD_NAMES["attribute"])
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/search/?q=*")
    expect(opened.locator("main")).to_contain_text(ODD_NAMES["attribute"])
    assert not has_run(opened)
    opened.goto("/jobs/")
    opened.get_by_role("combobox", name="User").focus()
    options = opened.locator("#suggested-user option")
    options.first.wait_for(state="attached")
    suggested = set(options.evaluate_all("(all) => all.map((each) => each.value)"))
    assert {ODD_NAMES["script"], ODD_NAMES["attribute"]} <= suggested
    assert not has_run(opened)
    opened.goto(f"/jobs/?user={quote(ODD_NAMES['script'])}")
    opened.get_by_role("link", name="job-", exact=False).first.click()
    opened.locator("[data-toast]").wait_for(state="attached")
    worst = ODD_NAMES["script"]
    in_thread(lambda: JobRecord.objects.filter(user=worst).update(name=worst, status="Failed"))
    expect(opened.locator("#toast")).to_contain_text(worst)
    assert not has_run(opened)
