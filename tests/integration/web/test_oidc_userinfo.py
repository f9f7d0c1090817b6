"""Claims that an OIDC provider on a real socket has at its userinfo endpoint only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from structlog.testing import capture_logs

from ipuhub.models import ExternalIdentity, ExternalSession
from tests.integration.web.oidcsignin import count, sign_in, user_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

pytestmark = pytest.mark.django_db


@pytest.fixture
def lean(provider: OidcProvider, settings: SettingsWrapper) -> OidcProvider:
    """A provider whose ID tokens have no groups, and a site with roles."""
    settings.OIDC_ADMIN_GROUPS = ["ipu-admins"]
    del provider.person["groups"]
    provider.userinfo = {"groups": ["ipu-admins"]}
    return provider


def ann() -> User:
    return get_user_model().objects.get(username="ann")


def test_groups_that_the_id_token_lacks_come_from_userinfo(lean: OidcProvider) -> None:
    client = Client()
    assert sign_in(lean, client).status_code == 302
    assert user_of(client) == "ann"
    assert ann().is_staff
    lean.userinfo = {"groups": []}
    sign_in(lean)
    assert not ann().is_staff


def test_groups_of_nested_objects_come_from_userinfo(
    lean: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_GROUPS_CLAIM = "realm_access.roles"
    lean.person["realm_access"] = {}
    lean.userinfo = {"realm_access": {"roles": ["ipu-admins"]}}
    assert sign_in(lean).status_code == 302
    assert ann().is_staff


def test_a_name_that_the_id_token_lacks_comes_from_userinfo(provider: OidcProvider) -> None:
    del provider.person["preferred_username"]
    provider.userinfo = {"preferred_username": "ann"}
    assert sign_in(provider).status_code == 302
    assert ann()


def test_a_claim_of_the_id_token_takes_precedence(lean: OidcProvider) -> None:
    lean.userinfo = {"groups": ["ipu-admins"], "preferred_username": "mallory", "sid": "another"}
    assert sign_in(lean).status_code == 302
    assert ann().is_staff
    assert ExternalSession.objects.get().session_id == "session-1"


def test_an_empty_list_of_groups_is_not_missing(lean: OidcProvider) -> None:
    lean.person["groups"] = []
    assert sign_in(lean).status_code == 302
    assert not ann().is_staff
    assert "/userinfo" not in lean.requested


def test_a_site_without_roles_does_not_ask_for_groups(
    lean: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_ADMIN_GROUPS = []
    assert sign_in(lean).status_code == 302
    assert "/userinfo" not in lean.requested


def test_without_the_endpoint_the_id_token_is_all(lean: OidcProvider) -> None:
    lean.userinfo = None
    assert sign_in(lean).status_code == 302
    assert not ann().is_staff


def assert_refused(provider: OidcProvider, status: int, outcome: str, sentence: str) -> None:
    """No user is signed in or changed; page, metric and log say why."""
    client, before = Client(), count(outcome)
    staff = set(get_user_model().objects.filter(is_staff=True))
    with capture_logs() as logs:
        answer = sign_in(provider, client)
    assert (answer.status_code, sentence in answer.content.decode()) == (status, True)
    assert count(outcome) == before + 1
    assert [each["log_level"] for each in logs] == ["warning"]
    assert user_of(client) is None
    assert "sessionid" not in client.cookies
    assert not ExternalSession.objects.exists()
    assert set(get_user_model().objects.filter(is_staff=True)) == staff


@pytest.mark.parametrize("subject", ["0002", "", None, 1, ["0001"]])
def test_userinfo_about_another_subject_is_refused(lean: OidcProvider, subject: object) -> None:
    lean.userinfo = {"groups": ["ipu-admins"], "sub": subject}
    assert_refused(lean, 403, "userinfo", "belongs to another account")
    assert not ExternalIdentity.objects.exists()


def test_a_userinfo_that_fails_takes_no_role_away(lean: OidcProvider) -> None:
    sign_in(lean)
    ExternalSession.objects.all().delete()
    lean.userinfo = {"sub": "0002"}
    assert_refused(lean, 403, "userinfo", "belongs to another account")
    assert ann().is_staff


@pytest.mark.parametrize(
    ("answer", "want_status", "want_outcome", "want_sentence"),
    [
        ((401, {"error": "invalid_token"}), 400, "userinfo", "did not give the user information"),
        ((403, {}), 400, "userinfo", "did not give the user information"),
        ((500, {}), 503, "unreachable", "does not answer"),
        ((302, {}), 503, "unreachable", "does not answer"),
        ((200, ["groups"]), 503, "unreachable", "does not answer"),
    ],
)
def test_an_endpoint_that_fails_signs_nobody_in(
    lean: OidcProvider,
    answer: tuple[int, Any],
    want_status: int,
    want_outcome: str,
    want_sentence: str,
) -> None:
    lean.userinfo_answer = answer
    assert_refused(lean, want_status, want_outcome, want_sentence)


@pytest.mark.parametrize("token", [None, 7, "", "two words", "line\r\nX-Admin: yes", "ü"])
def test_an_access_token_that_fits_in_no_header_is_not_sent(
    lean: OidcProvider, token: object
) -> None:
    lean.access_token = token
    assert_refused(lean, 400, "userinfo", "did not give the user information")
    assert "/userinfo" not in lean.requested
