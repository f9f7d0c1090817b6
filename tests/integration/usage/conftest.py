"""A web process that talks plain HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper


@pytest.fixture(autouse=True)
def plain_http(settings: SettingsWrapper) -> None:
    settings.SECURE_SSL_REDIRECT = False
