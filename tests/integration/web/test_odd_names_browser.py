"""Hostile names in a real browser: every one is there to read, none runs, with scripts on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from ipuhub.models import RecordFault
from tests.builders.clients import browser as signed_in_client
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.oddnames import ODD_NAMES
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from usage.models import PodLifetime

NOW = at("2026-11-21T12:00")
PAGES = (
    "/usage/pods/",
    "/usage/?month=2026-11&by=group&measure=cpu_core_hours",
    "/usage/?month=2026-11&by=user,component_name&measure=cpu_core_hours",
)


def odd_pod(name: str, hours: int) -> PodLifetime:
    """Store a pod that has this name everywhere, and held a core so long."""
    everywhere = dict.fromkeys(("group", "user", "component_name", "instance_type", "node"), name)
    return store_pod(f"2026-11-01T{hours % 24:02}:00", "2026-11-03T00:00", **everywhere)


@pytest.fixture
def cookie(transactional_db: None, django_user_model: type, monkeypatch: pytest.MonkeyPatch) -> str:
    """A signed-in administrator of a record full of names."""
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    for number, name in enumerate(ODD_NAMES.values()):
        odd_pod(name, number)
        store_partition(
            "2026-11-01T00:00", "2026-11-02T00:00", group=name, job_name=name, partition=name
        )
        RecordFault.objects.create(
            watch="pods",
            uid=str(number),
            name=name,
            code="x",
            message=name,
            first_at=NOW,
            last_at=NOW,
        )
    return signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value


MADE = """() => window.ran !== undefined || [...document.querySelectorAll("*")].some((each) =>
  [...each.attributes].some(({ name }) => /^on/i.test(name))
  || (each.matches("img, script, iframe, object, embed, base")
    && !(each.src ?? "").startsWith(`${location.origin}/static/`)))"""


def has_run(page: Page) -> bool:
    """Return whether a name ran, or made an element that our pages do not have, or a handler."""
    return bool(page.evaluate(MADE))


def text_of_document(page: Page) -> str:
    """Return the document's text."""
    text: str = page.evaluate("document.body.textContent")
    return text


def test_every_name_is_shown_and_none_runs(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        for path in (*PAGES, "/usage/faults/", "/partitions/"):
            page.goto(path)
            page.wait_for_load_state("networkidle")
            text = text_of_document(page)
            for what, name in ODD_NAMES.items():
                # HTML has one kind of line end: a parser makes that kind of all.
                lines = name.replace("\r\n", "\n").replace("\r", "\n")
                assert lines in text or name in text, (path, what)
            assert not has_run(page), path


def test_a_chart_shows_names_as_text_and_under_the_pointer_too(address: str, cookie: str) -> None:
    for number in range(8):  # these are the largest: what the chart names
        odd_pod(f"<img src=x onerror='window.ran={number}'>", 0)
    with page_of(address, cookie, 1280) as page:
        page.goto(PAGES[1])
        legend = page.locator(".usage-legend")
        legend.wait_for()
        place = page.locator("[data-chart]").bounding_box()
        assert place
        for step in range(10):
            page.mouse.move(place["x"] + place["width"] * step / 10, place["y"] + 80)
        assert "<img src=x" in legend.inner_text()
        keys = legend.locator("svg.key rect:first-child")
        fills = keys.evaluate_all("(all) => all.map((key) => getComputedStyle(key).fill)")
        assert len(fills) == 9  # eight names and the rest, each as the stylesheet says
        assert "rgb(138, 143, 152)" in fills
        assert "rgb(0, 0, 0)" not in fills
        assert not has_run(page)


def test_a_name_in_the_address_comes_back_as_text(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        for what in ("script", "end of script", "attribute", "single attribute"):
            page.goto("/usage/pods/?" + urlencode({"group": ODD_NAMES[what]}))
            assert page.get_by_role("textbox", name="Group").input_value() == ODD_NAMES[what]
            page.goto("/usage/?" + urlencode({"month": "2026-11", "group": ODD_NAMES[what]}))
            page.wait_for_load_state("networkidle")
            assert ODD_NAMES[what] in text_of_document(page), what
            assert not has_run(page), what


def test_a_dialog_and_a_breach_of_the_policy_would_be_noticed(address: str, cookie: str) -> None:
    inline = "document.body.append(Object.assign(document.createElement('script'), {text: '1'}))"
    noticed = pytest.raises(AssertionError, match="Content Security Policy.*alert: hello")
    with noticed, page_of(address, cookie, 1280) as page:
        page.goto("/help/")
        page.evaluate(inline)
        page.evaluate("alert('hello')")
