"""One Chromium a process: it and its driver start for two seconds of CPU.

Its headless shell has the same engine without windows, toolbars and tabs: a page opens for 0.2
seconds of CPU in place of 0.6.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@dataclass(frozen=True)
class _Started:
    playwright: Playwright
    browser: Browser
    loop: asyncio.AbstractEventLoop
    """Of Playwright, marked as running in this thread while its browser is used."""


_started: list[_Started] = []


def _start() -> _Started:
    from playwright.sync_api import expect as of_playwright
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium-headless-shell)")
    playwright = sync_playwright().start()
    of_playwright.set_options(timeout=PATIENCE_SECONDS * 1000)  # else 5 s, on a machine under load
    browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
    return _Started(playwright, browser, asyncio.get_running_loop())


@contextmanager
def shared_browser() -> Iterator[Browser]:
    """Yield the browser of this process, without contexts; close those that the block opens.

    Between two blocks no event loop is marked as running: asynchronous tests have their own, and
    Django refuses its database where an event loop runs.
    """
    if _started and not _started[-1].browser.is_connected():
        end_browser()
    if not _started:
        _started.append(_start())
    started = _started[-1]
    asyncio._set_running_loop(started.loop)
    try:
        yield started.browser
        for context in started.browser.contexts:
            context.close()
    except BaseException:
        end_browser()  # whatever state it is in
        raise
    finally:
        asyncio._set_running_loop(None)


def expect(*given: Any) -> Any:
    """Playwright's `expect`, which is imported where a browser runs."""
    from playwright.sync_api import expect as of_playwright

    return of_playwright(*given)


def end_browser() -> None:
    """End the browser and its driver, if they run."""
    while _started:
        started = _started.pop()
        asyncio._set_running_loop(started.loop)
        try:
            if started.browser.is_connected():
                started.browser.close()
            started.playwright.stop()
        finally:
            asyncio._set_running_loop(None)
