"""Sign-out at an OIDC provider on a real socket, and its back-channel logout."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from ipuhub.models import ExternalSession
from tests.integration.web.oidcsignin import sign_in, user_of

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

pytestmark = pytest.mark.django_db
LOGOUT = "/oidc/backchannel-logout"


def test_sign_out_goes_to_the_provider_with_the_id_token(provider: OidcProvider) -> None:
    client = Client()
    sign_in(provider, client)
    answer = client.post("/logout/")
    assert answer.status_code == 200
    address = answer.context["address"]
    assert address.startswith(f"{provider.issuer}/end_session?")
    query = dict(parse_qsl(urlsplit(address).query))
    assert query["post_logout_redirect_uri"] == "http://testserver/login/"
    hint = jwt.decode(query["id_token_hint"], options={"verify_signature": False})
    assert hint["sub"] == "0001"
    assert user_of(client) is None
    assert not ExternalSession.objects.exists()


def test_sign_out_works_here_without_an_endpoint_there(provider: OidcProvider) -> None:
    provider.metadata = {"end_session_endpoint": None}
    client = Client()
    sign_in(provider, client)
    assert client.post("/logout/")["Location"] == "/login/"
    assert user_of(client) is None


def test_a_local_user_signs_out_here_only(provider: OidcProvider) -> None:
    client = Client()
    client.force_login(get_user_model().objects.create_user("local"))
    assert client.post("/logout/")["Location"] == "/login/"


def test_the_session_lasts_as_long_as_the_setting(
    provider: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_SESSION_SECONDS = 900
    client = Client()
    sign_in(provider, client)
    assert client.session.get_expiry_age() == 900
    left = ExternalSession.objects.get().expires_at - timezone.now()
    assert dt.timedelta(seconds=800) < left <= dt.timedelta(seconds=900)


def three_sessions(provider: OidcProvider) -> list[Client]:
    """Ann twice, in two sessions of the provider, and Bob."""
    people = [("0001", "ann", "sid-1"), ("0001", "ann", "sid-2"), ("0002", "bob", "sid-3")]
    clients = [Client() for _ in people]
    for client, (sub, name, sid) in zip(clients, people, strict=True):
        provider.person |= {"sub": sub, "preferred_username": name}
        provider.sid = sid
        sign_in(provider, client)
    assert [user_of(client) for client in clients] == ["ann", "ann", "bob"]
    return clients


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"sub": "0001", "sid": "sid-1"}, [None, "ann", "bob"]),
        ({"sub": None, "sid": "sid-2"}, ["ann", None, "bob"]),
        ({"sub": "0001", "sid": None}, [None, None, "bob"]),
        ({"sub": "0002", "sid": "sid-1"}, ["ann", "ann", "bob"]),
        ({"sub": None, "sid": "unknown"}, ["ann", "ann", "bob"]),
        ({"sub": "0001", "sid": None, "iat": int(time.time()) - 600}, ["ann", "ann", "bob"]),
    ],
)
def test_back_channel_logout_ends_exactly_the_sessions_it_names(
    provider: OidcProvider, changes: dict[str, Any], want: list[str | None]
) -> None:
    clients = three_sessions(provider)
    answer = Client().post(LOGOUT, {"logout_token": provider.logout_token(**changes)})
    assert (answer.status_code, answer["Cache-Control"].count("no-store")) == (200, 1)
    assert [user_of(client) for client in clients] == want


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "another-client"},
        {"iss": "https://evil.example"},
        {"exp": 1_000_000_000},
        {"nonce": "x"},
        {"events": None},
        {"events": {}},
        {"events": "text"},
        {"jti": None},
        {"iat": None},
        {"sub": None, "sid": None},
        {"sid": 7},
        {"sid": ""},
    ],
)
def test_a_logout_token_that_does_not_fit_ends_nothing(
    provider: OidcProvider, changes: dict[str, Any]
) -> None:
    client = Client()
    sign_in(provider, client)
    answer = Client().post(LOGOUT, {"logout_token": provider.logout_token(**changes)})
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    assert user_of(client) == "ann"


def test_an_id_token_is_no_logout_token(provider: OidcProvider) -> None:
    client = Client()
    sign_in(provider, client)
    token = ExternalSession.objects.get().id_token
    assert Client().post(LOGOUT, {"logout_token": token}).status_code == 400
    assert Client().post(LOGOUT).status_code == 400
    assert Client().get(LOGOUT).status_code == 405
    assert user_of(client) == "ann"
