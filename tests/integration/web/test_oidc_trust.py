"""The certificate of an OIDC provider behind a private CA, on real TLS sockets."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.test import Client

from ipuhub.oidc.trust import Trust
from tests.fakes.oidcprovider import oidc_provider
from tests.integration.kube.pki import Authority
from tests.integration.web.oidcsignin import count, sign_in, use_provider, user_of
from tests.integration.web.webprocess import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

pytestmark = pytest.mark.django_db


@contextmanager
def private_provider(
    settings: SettingsWrapper, folder: Path, authority: Authority, host: str = "127.0.0.1"
) -> Iterator[OidcProvider]:
    """A provider whose certificate is the authority's, and a site whose CA file is ca.pem."""
    with oidc_provider(authority.server_context(folder, host)) as found:
        use_provider(settings, found)
        settings.OIDC_CA_PATH = str(folder / "ca.pem")
        (folder / "ca.pem").write_bytes(authority.pem)
        yield found


def assert_not_trusted(provider: OidcProvider) -> None:
    before = count("certificate")
    answer = Client().get("/oidc/start")
    assert answer.status_code == 503
    assert "cannot verify the certificate" in answer.content.decode()
    assert "IPUHUB_OIDC_CA_PATH" in answer.content.decode()
    assert count("certificate") == before + 1
    assert provider.requested == []


def test_a_provider_behind_a_private_ca_signs_users_in(
    settings: SettingsWrapper, tmp_path: Path
) -> None:
    with private_provider(settings, tmp_path, Authority()) as provider:
        client = Client()
        assert sign_in(provider, client).status_code == 302
        assert user_of(client) == "ann"
        assert "/jwks" in provider.requested


def test_without_its_ca_the_provider_is_sent_nothing(
    settings: SettingsWrapper, tmp_path: Path
) -> None:
    with private_provider(settings, tmp_path, Authority()) as provider:
        settings.OIDC_CA_PATH = ""
        assert_not_trusted(provider)


def test_the_authorities_of_the_system_are_read_once_for_all_providers(tmp_path: Path) -> None:
    system = Trust("").context()
    assert system.cert_store_stats()["x509"] > 0
    assert Trust("").context() is system
    (tmp_path / "ca.pem").write_bytes(Authority().pem)
    private = Trust(str(tmp_path / "ca.pem")).context()
    assert private is not system
    assert private.cert_store_stats()["x509"] == 1


def test_a_certificate_for_another_host_is_not_trusted(
    settings: SettingsWrapper, tmp_path: Path
) -> None:
    with private_provider(settings, tmp_path, Authority(), "127.0.0.2") as provider:
        assert_not_trusted(provider)


def test_a_ca_file_that_is_gone_at_first_verifies_nothing_and_is_a_page(
    settings: SettingsWrapper, tmp_path: Path
) -> None:
    with private_provider(settings, tmp_path, Authority()) as provider:
        (tmp_path / "ca.pem").unlink()
        assert_not_trusted(provider)


def test_a_changed_ca_file_counts_from_the_next_connection(
    settings: SettingsWrapper, tmp_path: Path
) -> None:
    authority, ca_file = Authority(), tmp_path / "ca.pem"
    with private_provider(settings, tmp_path, authority) as provider:
        ca_file.write_bytes(Authority("another").pem)
        assert_not_trusted(provider)
        ca_file.write_bytes(authority.pem)
        assert sign_in(provider).status_code == 302
        ca_file.write_text("half written")
        assert sign_in(provider).status_code == 302  # the last good file stays
        ca_file.unlink()
        assert sign_in(provider).status_code == 302


def revocation_list() -> str:
    """A PEM file that loads and in which no certificate is."""
    name, now = x509.Name([]), dt.datetime.now(dt.UTC)
    builder = x509.CertificateRevocationListBuilder(name, now, now)
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (None, "No such file or directory. Correct the path"),
        ("", "no certificate that can be read"),
        ("no PEM", "no certificate that can be read"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no certificate that"),
        (revocation_list(), "no certificate that can be read"),
    ],
    ids=["missing", "empty", "text", "broken", "revocation list"],
)
@pytest.mark.django_db(transaction=True)
def test_the_dashboard_does_not_start_without_a_ca_file_it_can_use(
    text: str | None, want: str, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "manage.py", "run_web", "--port", "0"],
        env=environment(
            IPUHUB_OIDC_ISSUER="https://login.example",
            IPUHUB_OIDC_CLIENT_ID="ipuhub",
            IPUHUB_OIDC_CA_PATH=str(path),
        ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"IPUHUB_OIDC_CA_PATH: {'cannot read ' if text is None else ''}{path}" in done.stderr
    assert want in done.stderr
    assert "Traceback" not in done.stderr
