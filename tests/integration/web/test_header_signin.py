"""Header mode: users whom a proxy names, and everybody else who sends that header."""

from __future__ import annotations

import http.client
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.http import HttpResponse
from django.test import Client, RequestFactory
from prometheus_client import REGISTRY

from ipuhub.models import AuditEntry, ExternalIdentity
from ipuhub.oidc.headers import HeaderSignIn
from tests.integration.web.webprocess import served

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

PROXY, STRANGER = "10.1.2.3", "192.0.2.1"


@pytest.fixture
def header_mode(settings: SettingsWrapper) -> None:
    settings.AUTH_HEADER_USER, settings.AUTH_HEADER_GROUPS = "X-Forwarded-User", "X-Groups"
    settings.AUTH_HEADER_PROXIES = [ip_network("10.1.2.0/24")]


def get(
    name: str, groups: str = "", address: str = PROXY, path: str = "/account/tokens/"
) -> HttpResponse:
    headers = {"X-Forwarded-User": name, "X-Groups": groups}
    return Client().get(path, REMOTE_ADDR=address, headers=headers)  # type: ignore[return-value]


@pytest.mark.django_db
@pytest.mark.usefixtures("header_mode")
def test_the_proxys_user_is_signed_in_for_each_request() -> None:
    answer = get("ann")
    assert answer.status_code == 200
    assert answer.context["user"].get_username() == "ann"
    assert get("ann").context["user"].pk == answer.context["user"].pk
    assert "sessionid" not in answer.cookies
    assert Client().get("/account/tokens/", REMOTE_ADDR=PROXY).status_code == 302
    assert AuditEntry.objects.get().address == PROXY  # that forwards no other, by the settings


@pytest.mark.django_db
@pytest.mark.usefixtures("header_mode")
@pytest.mark.parametrize("forwarded", ["", PROXY])
def test_the_header_of_anybody_else_is_ignored(forwarded: str, settings: SettingsWrapper) -> None:
    settings.TRUSTED_PROXIES = []
    labels = {"outcome": "untrusted"}
    before = REGISTRY.get_sample_value("ipuhub_external_sign_ins_total", labels) or 0
    headers = {"X-Forwarded-User": "ann", "X-Forwarded-For": forwarded}
    answer = Client().get("/account/tokens/", REMOTE_ADDR=STRANGER, headers=headers)
    assert answer.status_code == 302
    assert not get_user_model().objects.exists()
    assert REGISTRY.get_sample_value("ipuhub_external_sign_ins_total", labels) == before + 1


@pytest.mark.django_db
def test_without_the_setting_no_header_signs_in() -> None:
    assert get("ann").status_code == 302


@pytest.mark.django_db
@pytest.mark.usefixtures("header_mode")
def test_groups_of_the_header_are_roles(settings: SettingsWrapper) -> None:
    settings.OIDC_ADMIN_GROUPS, settings.OIDC_REQUIRED_GROUPS = ["ops"], ["ipu"]
    assert get("ann", "ipu, ops", path="/system/").status_code == 200
    assert get("ann", "ipu", path="/system/").status_code == 403
    assert get("ann", "ipu, ops", path="/system/").status_code == 200
    assert get("ann", "other").status_code == 403
    assert get("ann", "ops", path="/api/v1/jobs").json()["status"] == 403


@pytest.mark.django_db
@pytest.mark.usefixtures("header_mode")
def test_groups_that_another_process_has_seen_do_not_outlast_the_header(
    settings: SettingsWrapper,
) -> None:
    settings.OIDC_ADMIN_GROUPS = ["ops"]
    first, second = (HeaderSignIn(lambda _request: HttpResponse()) for _ in range(2))
    for process, groups, is_admin in (
        (first, "", False),
        (second, "ops", True),
        (first, "", False),
    ):
        headers = {"X-Forwarded-User": "ann", "X-Groups": groups}
        request = RequestFactory().get("/", REMOTE_ADDR=PROXY, headers=headers)
        process(request)
        assert get_user_model().objects.get().is_staff is is_admin


@pytest.mark.django_db
@pytest.mark.usefixtures("header_mode")
@pytest.mark.parametrize("name", ["ann,evil", "a b", "x" * 200, "\xff", "Local", "local"])
def test_names_that_do_not_fit_or_are_local_users_are_refused(name: str) -> None:
    get_user_model().objects.create_user("local", password="x", is_staff=True)
    answer = get(name)
    assert answer.status_code in {400, 403}
    assert "You are not signed in" in answer.content.decode()
    assert not ExternalIdentity.objects.exists()


@pytest.mark.django_db
@pytest.mark.usefixtures("header_mode")
def test_a_disabled_user_is_refused_at_once() -> None:
    assert get("ann").status_code == 200
    get_user_model().objects.update(is_active=False)
    assert get("ann").status_code == 403


@pytest.mark.django_db
@pytest.mark.usefixtures("header_mode")
def test_the_header_wins_over_a_session_and_sign_out_leads_to_the_proxy(
    settings: SettingsWrapper,
) -> None:
    settings.AUTH_HEADER_SIGN_OUT = "/oauth2/sign_out"
    client = Client()
    client.force_login(get_user_model().objects.create_user("local", is_staff=True))
    headers = {"X-Forwarded-User": "ann"}
    answer = client.get("/account/tokens/", REMOTE_ADDR=PROXY, headers=headers)
    assert answer.context["user"].get_username() == "ann"
    answer = client.post("/logout/", REMOTE_ADDR=PROXY, headers=headers)
    assert answer.context["address"] == "/oauth2/sign_out"
    assert client.get("/account/tokens/").status_code == 302


@pytest.mark.django_db(transaction=True)
def test_a_process_takes_no_twin_of_the_header() -> None:
    settings = {
        "IPUHUB_AUTH_HEADER_USER": "X-Forwarded-User",
        "IPUHUB_AUTH_HEADER_PROXIES": "127.0.0.1",
    }
    with served(**settings) as port:
        found = []
        for header in ("X-Forwarded-User", "X_Forwarded_User", "X-Forwarded_User"):
            caller = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
            caller.request("GET", "/account/tokens/", headers={header: "ann"})
            found.append(caller.getresponse().status)
            caller.close()
    assert found == [200, 302, 302]
