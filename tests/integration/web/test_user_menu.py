"""The user menu: entries by role, with and without JavaScript, by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as django_settings

from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.integration.web.livepages import axe_violations, page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db
OWN = ["API tokens", "Password", "Notifications", "Audit", "Help"]


def menu_of(user: User) -> list[str]:
    text = signed_in_client(user).get("/help/").content.decode()
    (menu,) = re.findall(r'<div class="user-menu-list">(.*?)</details>', text, re.DOTALL)
    assert 'action="/logout/"' in menu
    assert "data-theme-switch" in menu
    return re.findall(r'<a href="[^"]+">([^<]+)</a>', menu)


def test_the_menu_has_what_the_user_may_open(admin: User, django_user_model: Any) -> None:
    assert menu_of(django_user_model.objects.create_user("ann")) == OWN
    assert menu_of(admin) == [*OWN[:3], "Users", "Role changes", *OWN[3:]]


@pytest.fixture
def cookie(transactional_db: None, admin: User) -> str:
    del transactional_db
    return signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value


@pytest.mark.parametrize("width", [1440, 390])
def test_without_javascript_it_opens_within_the_window_and_leads_on(
    address: str, cookie: str, width: int
) -> None:
    with page_of(address, cookie, width, scripts=False) as page:
        page.goto("/help/")
        menu = page.locator(".user-menu-list")
        expect(menu).to_be_hidden()
        page.locator("summary.nav-user").click()
        box = menu.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        expect(menu.locator("[data-theme-switch]")).to_be_hidden()  # it would do nothing
        menu.get_by_role("link", name="Notifications").click()
        page.wait_for_url("**/account/notifications/")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_by_keyboard_it_opens_goes_on_and_closes(
    address: str, cookie: str, width: int, scheme: Any
) -> None:
    with page_of(address, cookie, width) as page:
        page.emulate_media(color_scheme=scheme)
        page.goto("/help/")
        page.locator("summary.nav-user").focus()
        page.keyboard.press("Enter")
        menu = page.locator(".user-menu-list")
        expect(menu).to_be_visible()
        assert not axe_violations(page)
        page.keyboard.press("Tab")
        expect(menu.get_by_role("link", name="API tokens")).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(menu.get_by_role("link", name="Password")).to_be_focused()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowUp")
        expect(menu.get_by_role("button", name="Sign out")).to_be_focused()
        page.keyboard.press("Escape")
        expect(menu).to_be_hidden()
        expect(page.locator("summary.nav-user")).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(menu.get_by_role("link", name="API tokens")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("Space")
        expect(menu).to_be_visible()
        page.locator("h1").click(position={"x": 4, "y": 4})  # beside the menu, also on a phone
        expect(menu).to_be_hidden()


def test_it_is_closed_as_the_page_is_left(address: str, cookie: str) -> None:
    """Back shows a page as it was left."""
    with page_of(address, cookie, 1280) as page:
        page.goto("/help/")
        page.locator("summary.nav-user").click()
        expect(page.locator("#user-menu")).to_have_attribute("open", "")
        page.evaluate("window.dispatchEvent(new PageTransitionEvent('pagehide'))")
        expect(page.locator("#user-menu")).not_to_have_attribute("open", "")
