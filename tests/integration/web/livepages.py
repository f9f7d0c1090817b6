"""A server of a test alone, and Chromium that looks at it."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.test.testcases import LiveServerThread

from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

JUDGE = """async () => {
  const found = await axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    resultTypes: ["violations"],
  });
  return found.violations.map((rule) => [rule.id, rule.help, rule.nodes.map((node) => node.html)]);
}"""


@contextmanager
def live_server() -> Iterator[str]:
    """Yield the address of a server."""
    thread = LiveServerThread("127.0.0.1", StaticFilesHandler, port=0)
    thread.daemon = True
    thread.start()
    thread.is_ready.wait(90)
    assert not thread.error
    yield f"http://127.0.0.1:{thread.port}"
    thread.terminate()


@contextmanager
def page_of(
    address: str, cookie: str, width: int, *, scripts: bool = True, zone: str | None = None
) -> Iterator[Page]:
    """Yield a page of a browser in a time zone; afterwards nothing may have gone wrong in it but
    an answer of 400, which is a page with the reason."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    problems: list[str] = []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = running.new_context(
            base_url=address,
            java_script_enabled=scripts,
            timezone_id=zone,
            viewport={"width": width, "height": 860},
        )
        name = django_settings.SESSION_COOKIE_NAME
        context.add_cookies([{"name": name, "value": cookie, "url": address}])
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        page = context.new_page()
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        yield page
        running.close()
    assert [problem for problem in problems if "status of 400" not in problem] == []


def axe_violations(page: Page, path: str = "") -> list[str]:
    """Open `path`, or stay; return a line for each rule of accessibility that the page breaks."""
    if path:
        page.goto(path)
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    return [f"{page.url} {rule}: {words} {nodes}" for rule, words, nodes in page.evaluate(JUDGE)]
