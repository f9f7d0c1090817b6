"""The number of files to open to follow a request of the usage page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders.clients import browser
from tests.builders.lifetimes import store_partition
from tests.fakes.entered import files_entered

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def test_files_entered_by_the_usage_page(admin: User) -> None:
    client = browser(admin)
    store_partition("2026-11-01", "2026-11-02")
    client.get("/usage/")
    with files_entered() as seen:
        assert client.get("/usage/").status_code == 200
    assert len(seen.calls) <= 20
