"""Going through a sign-in by OIDC as a browser does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.test import Client
from prometheus_client import REGISTRY

if TYPE_CHECKING:
    from django.http import HttpResponse
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider


def use_provider(settings: SettingsWrapper, provider: OidcProvider) -> None:
    """Set the settings of a site that uses the provider."""
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = provider.issuer, provider.client_id
    settings.OIDC_CLIENT_SECRET = provider.secret
    settings.ALLOWED_HOSTS = ["testserver"]


def count(outcome: str, name: str = "sign_ins") -> float:
    """Return how many sign-ins (or logouts) had that outcome."""
    found = REGISTRY.get_sample_value(f"ipuhub_external_{name}_total", {"outcome": outcome})
    return found or 0.0


def sign_in(provider: OidcProvider, client: Client | None = None, path: str = "") -> HttpResponse:
    """Go through a sign-in as a browser does; return the answer of the callback."""
    client = client or Client()
    answer = client.get("/oidc/start", {"next": path} if path else {})
    return client.get(provider.signed_in(answer["Location"]))  # type: ignore[return-value]


def user_of(client: Client) -> str | None:
    """Return the user who is signed in, by a page."""
    answer = client.get("/account/tokens/")
    return str(answer.context["user"].get_username()) if answer.status_code == 200 else None
