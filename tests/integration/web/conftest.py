"""Users, and a web process that talks plain HTTP and finds no cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model

from dashboard.overview import page
from tests.builders.roles import grant
from tests.fakes.oidcprovider import oidc_provider
from tests.integration.web.livepages import live_server
from tests.integration.web.oidcsignin import use_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider


@pytest.fixture(autouse=True)
def plain_http(settings: SettingsWrapper) -> None:
    settings.SECURE_SSL_REDIRECT = False
    page._POLLED._slots.clear()


@pytest.fixture
def admin(db: None) -> User:
    return get_user_model().objects.create_user("root", password="x", is_staff=True)


@pytest.fixture
def alice(db: None) -> User:
    """Sees team-a."""
    user = get_user_model().objects.create_user("alice", password="x")
    grant(user, "operator", "team-a")
    return user


@pytest.fixture
def charlie(db: None) -> User:
    """The stranger: signed in, sees nothing."""
    return get_user_model().objects.create_user("charlie", password="x")


@pytest.fixture
def provider(settings: SettingsWrapper) -> Iterator[OidcProvider]:
    """An OIDC provider on a real socket, and the settings of a site that uses it."""
    with oidc_provider() as found:
        use_provider(settings, found)
        yield found


@pytest.fixture
def address(transactional_db: None, plain_http: None) -> Iterator[str]:
    """A server of this test alone, whose middleware knows that it speaks plain HTTP."""
    with live_server() as found:
        yield found
