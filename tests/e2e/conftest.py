"""One running demo for the whole suite; each test leaves it empty."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browsing import signed_in
from tests.e2e.running_demo import start_demo, stop_demo
from tests.fakes.chromium import shared_browser
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.e2e.running_demo import RunningDemo


HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def needs_kubectl() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: the end-to-end suite drives the product with it")


_running: list[RunningDemo] = []


@pytest.fixture
def demo(needs_kubectl: None, tmp_path_factory: pytest.TempPathFactory) -> RunningDemo:
    if not _running:
        _running.append(start_demo(tmp_path_factory.mktemp("demo")))
    return _running[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """End the demo with the last of these tests: its dozen processes would go on beside all others
    to the end of the session."""
    yield
    if nextitem is None or HERE not in nextitem.path.parents:
        end_demo()


def pytest_sessionfinish() -> None:
    """The session may end before its last test."""
    end_demo()


def end_demo() -> None:
    while _running:
        ended = _running.pop()
        stop_demo(ended)
        # Whatever the tests made them do: no process lacked a right.
        assert [line for line in ended.lines if "is forbidden" in line] == []


@pytest.fixture
def browser() -> Iterator[Browser]:
    with shared_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser, demo: RunningDemo) -> Iterator[Page]:
    """The demo as its administrator sees it at a desk."""
    demo.wait_until_recording()
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    signed_in(opened, demo)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def no_jobs_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves the demo empty: no job, no pod, no IPU held."""
    yield
    if "demo" not in request.fixturenames or not _running:
        return
    running = _running[0]
    if running.read("/apis/graphcore.ai/v1alpha1/ipujobs")["items"]:
        running.kubectl("delete", "ipujobs", "--all", "-A", "--timeout=120s")
    wait_until(lambda: running.stats()["total"]["used"] == 0, "all IPUs free")
