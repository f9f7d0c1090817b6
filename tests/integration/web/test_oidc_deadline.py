"""A provider that answers too slowly: one deadline, on real sockets."""

from __future__ import annotations

import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from django.test import Client

from ipuhub.oidc import exchange
from ipuhub.oidc.exchange import Unreachable
from ipuhub.oidc.provider import Client as OidcClient
from ipuhub.oidc.provider import Provider
from tests.fakes.oidcprovider import oidc_provider
from tests.fakes.waiting import PATIENCE_SECONDS
from tests.integration.kube.pki import Authority
from tests.integration.web.oidcsignin import count, sign_in, use_provider, user_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

pytestmark = pytest.mark.django_db
DISCOVERY = "/.well-known/openid-configuration"
LIMIT_SECONDS = 2  # enough to connect on a slow machine, and less than a provider dribbles


def assert_is_given_up(provider: OidcProvider) -> None:
    """One page instead of an endless wait, and the connection is closed."""
    before = count("unreachable")
    answer = Client().get("/oidc/start")
    assert answer.status_code == 503
    assert "does not answer" in answer.content.decode()
    assert count("unreachable") == before + 1
    assert provider.hung_up.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_provider_that_dribbles_bytes_is_given_up(
    part: str, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PATIENCE_SECONDS", LIMIT_SECONDS)
    provider.dribbles = {DISCOVERY: part}
    assert_is_given_up(provider)
    monkeypatch.undo()
    provider.dribbles = {}
    client = Client()
    sign_in(provider, client)
    assert user_of(client) == "ann"


def test_an_answer_that_nests_too_deeply_is_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    async def deep(*_request: object) -> tuple[int, str, bytes]:
        return 200, "application/json", b"[" * 100_000

    monkeypatch.setattr(exchange, "_fetch", deep)
    question = exchange.Question("GET", "https://provider.example", {})
    with pytest.raises(Unreachable, match="not a JSON object"):
        exchange.ask(question, ssl.create_default_context())


def test_over_tls_a_dribbling_provider_is_given_up_too(
    settings: SettingsWrapper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PATIENCE_SECONDS", LIMIT_SECONDS)
    authority = Authority()
    with oidc_provider(authority.server_context(tmp_path, "127.0.0.1")) as provider:
        use_provider(settings, provider)
        settings.OIDC_CA_PATH = str(tmp_path / "ca.pem")
        (tmp_path / "ca.pem").write_bytes(authority.pem)
        provider.dribbles = {DISCOVERY: "body"}
        assert_is_given_up(provider)


def test_all_requests_of_one_sign_in_share_the_deadline(
    provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(exchange, "monotonic", lambda: clock[0])
    provider.userinfo = {"preferred_username": "ann"}
    del provider.person["preferred_username"]
    client = Client()
    there = provider.signed_in(client.get("/oidc/start")["Location"])

    def take_five_seconds() -> None:
        clock[0] += 5

    provider.before_answer = take_five_seconds
    answer = client.get(there)  # token, keys; the deadline passes before userinfo
    assert answer.status_code == 503
    assert provider.requested[-2:] == ["/token", "/jwks"]
    assert user_of(client) is None


def test_requests_for_keys_do_not_queue_beyond_the_deadline(
    provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logout tokens come from anybody; each with an unknown key asks for the keys."""
    monkeypatch.setattr(exchange, "PATIENCE_SECONDS", LIMIT_SECONDS)
    provider.dribbles = {"/jwks": "body"}
    asking = Provider(OidcClient(provider.issuer, provider.client_id, provider.secret, ""))
    asking.metadata()

    def is_refused(key_id: str) -> bool:
        with exchange.one_deadline(), pytest.raises(Unreachable):
            asking.find_key(key_id)
        return True

    began = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(is_refused, "abcdefgh"))
    assert (
        time.monotonic() - began < 4 * LIMIT_SECONDS
    )  # one after the other, they would need 8 times
