"""Sign-in at a provider and sign-out there in Chromium, under the content security policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.oidcprovider import oidc_provider
from tests.integration.web.livepages import live_server, page_of

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper


def test_a_person_signs_in_and_out(
    transactional_db: None, plain_http: None, settings: SettingsWrapper
) -> None:
    settings.SESSION_COOKIE_SECURE = False
    with oidc_provider() as provider:
        settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = provider.issuer, provider.client_id
        settings.OIDC_CLIENT_SECRET, settings.OIDC_NAME = provider.secret, "Lab login"
        provider.asks_person = True
        with live_server() as address, page_of(address, "none", 1280) as page:
            page.goto("/account/tokens/")
            page.get_by_role("link", name="Sign in with Lab login").click()
            page.get_by_role("link", name="Let me in").click()
            page.wait_for_url("**/account/tokens/")
            page.locator("summary", has_text="Account of ann").click()
            page.get_by_role("button", name="Sign out").click()
            page.wait_for_url("**/login/")
            page.get_by_role("link", name="Sign in with Lab login").wait_for()
            assert "/end_session" in provider.requested
            page.goto("/account/tokens/")
            page.get_by_role("heading", name="Sign in").wait_for()
