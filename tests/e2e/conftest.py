"""One running demo for the whole suite; each test leaves it empty."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browsing import find_chromium, running_browser
from tests.e2e.running_demo import start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.e2e.running_demo import RunningDemo


@pytest.fixture(scope="session")
def needs_kubectl() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: the end-to-end suite drives the product with it")


@pytest.fixture(scope="session")
def demo(needs_kubectl: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    running = start_demo(tmp_path_factory.mktemp("demo"))
    try:
        yield running
    finally:
        stop_demo(running)
    # Whatever the tests made them do: no process lacked a right.
    assert [line for line in running.lines if "is forbidden" in line] == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    with running_browser(chromium) as running:
        yield running


@pytest.fixture(autouse=True)
def no_jobs_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves the demo empty: no job, no pod, no IPU held."""
    yield
    if "demo" not in request.fixturenames:
        return
    running: RunningDemo = request.getfixturevalue("demo")
    running.kubectl("delete", "ipujobs", "--all", "-A", "--timeout=120s")
    wait_until(lambda: running.stats()["total"]["used"] == 0, "all IPUs free")
