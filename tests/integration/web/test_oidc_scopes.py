"""Scopes that the dashboard requests at a provider on a real socket."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tests.integration.web.oidcsignin import count, sign_in, user_of

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

pytestmark = pytest.mark.django_db


def test_the_default_scopes_are_those_that_every_provider_knows(provider: OidcProvider) -> None:
    query = parse_qs(urlsplit(Client().get("/oidc/start")["Location"]).query)
    assert query["scope"] == ["openid profile email"]


def test_groups_that_belong_to_a_scope_come_when_it_is_requested(
    provider: OidcProvider, settings: SettingsWrapper
) -> None:
    provider.scope_of = {"groups": "groups"}
    settings.OIDC_ADMIN_GROUPS = ["users"]
    sign_in(provider)
    assert not get_user_model().objects.get(username="ann").is_staff
    settings.OIDC_SCOPES = ["openid", "profile", "groups"]
    sign_in(provider)
    assert get_user_model().objects.get(username="ann").is_staff


def test_a_scope_that_the_provider_refuses_is_a_page_that_names_the_setting(
    provider: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_SCOPES = ["openid", "unknown"]
    client, before = Client(), count("scope")
    answer = sign_in(provider, client)
    assert answer.status_code == 400
    assert "Ask an administrator to correct IPUHUB_OIDC_SCOPES" in answer.content.decode()
    assert count("scope") == before + 1
    assert user_of(client) is None
