"""Sign-in by OIDC at a provider on a real socket."""

from __future__ import annotations

import base64
import json
import time
from io import StringIO
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client

from ipuhub.models import ExternalIdentity
from ipuhub.oidc import provider as provider_module
from tests.builders.roles import grant
from tests.fakes.freeport import free_port
from tests.fakes.oidcprovider import rsa_key
from tests.integration.web.oidcsignin import count, sign_in, user_of

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

pytestmark = pytest.mark.django_db
LOGOUT = "/oidc/backchannel-logout"


def test_a_new_user_signs_in_and_comes_to_the_page_asked_for(provider: OidcProvider) -> None:
    client, before = Client(), count("ok")
    page = client.get("/login/", {"next": "/account/tokens/?x=1"}).content.decode()
    assert 'href="/oidc/start?next=%2Faccount%2Ftokens%2F%3Fx%3D1"' in page
    answer = sign_in(provider, client, "/account/tokens/?x=1")
    assert (answer.status_code, answer["Location"]) == (302, "/account/tokens/?x=1")
    assert user_of(client) == "ann"
    user = get_user_model().objects.get(username="ann")
    assert not user.is_staff
    assert not user.has_usable_password()
    assert count("ok") == before + 1
    sign_in(provider)
    assert get_user_model().objects.count() == 1


def test_the_request_carries_pkce_state_and_nonce(provider: OidcProvider) -> None:
    answer = Client().get("/oidc/start")
    query = dict(parse_qsl(urlsplit(answer["Location"]).query))
    assert query["code_challenge_method"] == "S256"
    assert len({query[name] for name in ("state", "nonce", "code_challenge")}) == 3
    assert query["redirect_uri"] == "http://testserver/oidc/callback"
    cookie = answer.cookies["ipuhub_oidc"]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", 600)


@pytest.mark.parametrize(
    "there", ["https://evil.example/", "//evil.example", "javascript:alert(1)"]
)
def test_no_other_site_is_the_next_page(provider: OidcProvider, there: str) -> None:
    assert sign_in(provider, path=there)["Location"] == "/"


def hs256(provider: OidcProvider, nonce: str) -> str:
    """A token whose HMAC key is the published key, as anybody can make it."""
    public = provider.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head = {"alg": "HS256", "kid": provider.key_id, "typ": "JWT"}
    claims = provider.claims(nonce=nonce, **provider.person)
    parts = b".".join(
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (head, claims)
    )
    signed = jwt.get_algorithm_by_name("HS256").sign(parts, public)
    return (parts + b"." + base64.urlsafe_b64encode(signed).rstrip(b"=")).decode()


IN_AN_HOUR = object()


@pytest.mark.parametrize(
    ("changes", "want_reason"),
    [
        ({"aud": "another-client"}, "audience"),
        ({"aud": ["ipuhub-dashboard", "another-client"]}, "audience"),
        ({"azp": "another-client"}, "audience"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"nonce": "of another sign-in"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"exp": 1_000_000_000}, "expired"),
        ({"iat": IN_AN_HOUR}, "expired"),
        ({"exp": None}, "claims"),
        ({"exp": "tomorrow"}, "claims"),
        ({"sub": None}, "claims"),
        ({"sub": ""}, "claims"),
        ({"preferred_username": "a b/c"}, "name"),
        ({"preferred_username": None}, "name"),
        ({"preferred_username": ["ann"]}, "name"),
        ({"preferred_username": "x" * 151}, "name"),
    ],
)
def test_claims_that_do_not_fit_are_refused(
    provider: OidcProvider, changes: dict[str, Any], want_reason: str
) -> None:
    in_an_hour = int(time.time()) + 3600  # of the test: a run may take longer
    provider.changes = {k: in_an_hour if v is IN_AN_HOUR else v for k, v in changes.items()}
    client, before = Client(), count(want_reason)
    answer = sign_in(provider, client)
    assert answer.status_code in {400, 403}
    assert "You are not signed in" in answer.content.decode()
    assert user_of(client) is None
    assert count(want_reason) == before + 1
    assert not get_user_model().objects.exists()


@pytest.mark.parametrize("kind", ["none", "HS256", "foreign key", "unknown key", "text"])
def test_tokens_that_the_provider_did_not_sign_are_refused(
    provider: OidcProvider, kind: str
) -> None:
    client = Client()
    there = provider.signed_in(client.get("/oidc/start")["Location"])
    nonce = next(iter(provider.codes.values()))["nonce"]
    claims = provider.claims(nonce=nonce, **provider.person)
    kid = {"kid": "unknown" if kind == "unknown key" else provider.key_id}
    tokens = {
        "none": lambda: jwt.encode(claims, None, "none", headers=kid),  # type: ignore[arg-type]
        "HS256": lambda: hs256(provider, nonce),
        "text": lambda: "no.token.",
    }
    foreign = rsa_key("stranger")
    provider.token = tokens.get(kind, lambda: jwt.encode(claims, foreign, "RS256", headers=kid))()  # type: ignore[arg-type]
    before = count("algorithm")
    assert client.get(there).status_code == 400
    assert user_of(client) is None
    assert count("algorithm") == before + (kind in {"none", "HS256"})


def test_an_answer_counts_once_and_in_its_browser_only(provider: OidcProvider) -> None:
    client, stranger = Client(), Client()
    there = provider.signed_in(client.get("/oidc/start")["Location"])
    assert stranger.get(there).status_code == 400
    assert client.get(there).status_code == 302
    assert client.get(there).status_code == 400  # its cookie is gone


def test_an_answer_of_another_provider_or_sign_in_is_refused(provider: OidcProvider) -> None:
    client = Client()
    there = provider.signed_in(client.get("/oidc/start")["Location"])
    query = {name: each[0] for name, each in parse_qs(urlsplit(there).query).items()}
    answer = client.get("/oidc/callback", {**query, "iss": "https://evil.example"})
    assert answer.status_code == 400
    client.get("/oidc/start")
    assert client.get("/oidc/callback", query).status_code == 400  # the state of the first sign-in
    assert user_of(client) is None


@pytest.mark.parametrize(("announced", "want_status"), [(True, 400), (False, 302), (None, 302)])
def test_an_answer_names_its_provider_if_that_is_announced(
    provider: OidcProvider, announced: bool | None, want_status: int
) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": announced}
    client = Client()
    there = provider.signed_in(client.get("/oidc/start")["Location"])
    query = {name: each[0] for name, each in parse_qs(urlsplit(there).query).items()}
    without = {name: each for name, each in query.items() if name != "iss"}
    before = count("issuer")
    assert client.get("/oidc/callback", without).status_code == want_status
    assert count("issuer") == before + (want_status == 400)
    assert sign_in(provider, client).status_code == 302  # it does name itself


def test_a_code_that_was_used_is_refused(provider: OidcProvider) -> None:
    client, before = Client(), count("code")
    there = provider.signed_in(client.get("/oidc/start")["Location"])
    provider.codes.clear()
    assert client.get(there).status_code == 400
    assert count("code") == before + 1


def test_ten_minutes_are_the_most_that_a_sign_in_may_take(
    provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, now = Client(), time.time()
    there = provider.signed_in(client.get("/oidc/start")["Location"])
    monkeypatch.setattr(time, "time", lambda: now + 601)
    answer = client.get(there)
    assert (answer.status_code, "more than 10 minutes" in answer.content.decode()) == (400, True)


@pytest.mark.parametrize(("error", "want_status"), [("access_denied", 403), ("server_error", 400)])
def test_an_error_of_the_provider_is_a_page(
    provider: OidcProvider, error: str, want_status: int
) -> None:
    client = Client()
    query = dict(parse_qsl(urlsplit(client.get("/oidc/start")["Location"]).query))
    answer = client.get("/oidc/callback", {"error": error, "state": query["state"]})
    assert answer.status_code == want_status
    assert "You are not signed in" in answer.content.decode()


def test_groups_are_roles_at_each_sign_in(
    provider: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_ADMIN_GROUPS, settings.OIDC_ACCOUNTANT_GROUPS = ["ipu-admins"], ["finance"]
    settings.OIDC_GROUPS_CLAIM = "realm_access.roles"
    provider.person["realm_access"] = {"roles": ["ipu-admins", "finance"]}
    sign_in(provider)
    user = get_user_model().objects.get(username="ann")
    assert user.is_staff
    assert [row.role for row in user.role_grants.all()] == ["accountant"]
    provider.person["realm_access"] = {"roles": "no list"}
    sign_in(provider)
    user.refresh_from_db()
    assert not user.is_staff
    assert not user.role_grants.exists()


def test_groups_are_kept_for_kubernetes_and_replaced_at_each_sign_in(
    provider: OidcProvider,
) -> None:
    for groups in (["b", "a"], ["c"], []):
        provider.person["groups"] = groups
        sign_in(provider)
        assert ExternalIdentity.objects.get().groups == sorted(groups)


def test_without_groups_for_a_role_the_role_stays_as_it_is(provider: OidcProvider) -> None:
    sign_in(provider)
    user = get_user_model().objects.get(username="ann")
    user.is_staff = True
    user.save()
    grant(user, "accountant")
    sign_in(provider)
    user.refresh_from_db()
    assert user.is_staff
    assert user.role_grants.count() == 1


def test_only_required_groups_may_sign_in(
    provider: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_REQUIRED_GROUPS = ["ipu-users"]
    assert sign_in(provider).status_code == 403
    assert not get_user_model().objects.exists()
    provider.person["groups"] = ["ipu-users"]
    assert sign_in(provider).status_code == 302


@pytest.mark.parametrize("name", ["ann", "Ann", "ANN"])
def test_a_local_user_of_that_name_is_not_taken_over(provider: OidcProvider, name: str) -> None:
    get_user_model().objects.create_user(name, password="x", is_staff=True)
    answer = sign_in(provider)
    assert answer.status_code == 403
    assert "belongs to another user" in answer.content.decode()
    assert not ExternalIdentity.objects.exists()


def test_an_administrator_links_a_local_user(provider: OidcProvider) -> None:
    for name in ("ann", "bob"):
        get_user_model().objects.create_user(name, password="x")
    client = Client()
    for _ in range(2):
        call_command("link_user", "ann", "0001", stdout=StringIO())
    assert sign_in(provider, client).status_code == 302
    assert user_of(client) == "ann"
    with pytest.raises(CommandError, match="is linked to user 'ann'"):
        call_command("link_user", "bob", "0001")
    with pytest.raises(CommandError, match="does not exist"):
        call_command("link_user", "carl", "0003")


def test_a_name_that_the_provider_gives_to_another_person_is_not_taken_over(
    provider: OidcProvider,
) -> None:
    sign_in(provider)
    provider.person["sub"] = "0002"
    assert sign_in(provider).status_code == 403


def test_a_renamed_person_stays_the_same_user(provider: OidcProvider) -> None:
    sign_in(provider)
    provider.person["preferred_username"] = "ann.married"
    assert sign_in(provider).status_code == 302
    assert [user.username for user in get_user_model().objects.all()] == ["ann"]


def test_a_disabled_user_is_refused(provider: OidcProvider) -> None:
    sign_in(provider)
    get_user_model().objects.update(is_active=False)
    assert sign_in(provider).status_code == 403


def test_a_rotated_key_is_read_when_a_token_needs_it(
    provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "_AGAIN_SECONDS", 0.0)
    assert sign_in(provider).status_code == 302
    old = provider.key
    provider.rotate(ec.generate_private_key(ec.SECP256R1()), "second", "ES256")
    assert sign_in(provider).status_code == 302
    assert provider.requested.count("/jwks") == 2
    provider.key, provider.key_id, provider.algorithm = old, "first", "RS256"  # withdrawn
    assert sign_in(provider).status_code == 400


def test_invented_key_ids_do_not_make_us_ask_again_and_again(provider: OidcProvider) -> None:
    sign_in(provider)
    for number in range(20):
        token = provider.sign(provider.claims())
        head = {"alg": "RS256", "kid": f"invented-{number}"}
        first = base64.urlsafe_b64encode(json.dumps(head).encode()).rstrip(b"=").decode()
        answer = Client().post(LOGOUT, {"logout_token": f"{first}.{token.split('.', 1)[1]}"})
        assert answer.status_code == 400
    assert provider.requested.count("/jwks") == 1


def test_a_silent_provider_is_one_page_and_local_users_still_sign_in(
    provider: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_ISSUER = f"http://127.0.0.1:{free_port()}"
    before = count("unreachable")
    answer = Client().get("/oidc/start")
    assert answer.status_code == 503
    assert "does not answer" in answer.content.decode()
    assert count("unreachable") == before + 1
    get_user_model().objects.create_user("local", password="right")
    client = Client()
    client.post("/login/", {"username": "local", "password": "right"})
    assert user_of(client) == "local"


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"authorization_endpoint": "ftp://127.0.0.1/x"},
        {"authorization_endpoint": None},
    ],
)
def test_a_discovery_document_that_does_not_fit_is_refused(
    provider: OidcProvider, metadata: dict[str, Any]
) -> None:
    provider.metadata = metadata
    assert Client().get("/oidc/start").status_code == 503


def test_without_a_provider_there_are_no_such_pages() -> None:
    client = Client()
    assert client.get("/oidc/start").status_code == 404
    assert client.get("/oidc/callback").status_code == 404
    assert client.post(LOGOUT).status_code == 404
    assert "/oidc/" not in client.get("/login/").content.decode()
