"""Going through a sign-in by OIDC as a browser does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.test import Client

if TYPE_CHECKING:
    from django.http import HttpResponse

    from tests.fakes.oidcprovider import OidcProvider


def sign_in(provider: OidcProvider, client: Client | None = None, path: str = "") -> HttpResponse:
    """Go through a sign-in as a browser does; return the answer of the callback."""
    client = client or Client()
    asked = client.get("/oidc/start", {"next": path} if path else {})
    return client.get(provider.signed_in(asked["Location"]))  # type: ignore[return-value]


def user_of(client: Client) -> str | None:
    """Who is signed in, as a page shows it."""
    answer = client.get("/account/tokens/")
    return str(answer.context["user"].get_username()) if answer.status_code == 200 else None
