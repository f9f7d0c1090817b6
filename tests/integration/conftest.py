"""The switch to a real API server, and the mark of the tests that take it."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def given_cluster() -> str:
    """The kubeconfig in IPUHUB_TEST_KUBECONFIG; nothing: an embedded API server is made."""
    return os.environ.get("IPUHUB_TEST_KUBECONFIG", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on a given cluster: all else is the same with and without one."""
    for item in items:
        if "given_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.takes_cluster)
