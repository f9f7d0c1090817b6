"""Browsers and programs of users, for tests of pages and API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.test import Client
from django.utils import timezone

from ipuhub.api.auth import make_token
from ipuhub.api.scopes import SCOPES

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def browser(user: User) -> Client:
    """A browser in which `user` is signed in."""
    client = Client()
    client.force_login(user)
    return client


def api_client(user: User, scopes: str = " ".join(SCOPES)) -> Client:
    """A program that sends an API token of `user`."""
    _token, text = make_token(user, "test", timezone.now(), scopes=scopes)
    return Client(headers={"Authorization": f"Bearer {text}"})
