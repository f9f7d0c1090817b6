"""A server of a test alone, and Chromium that looks at it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING

from django.conf import settings as django_settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.test.testcases import LiveServerThread

from tests.fakes.chromium import shared_browser
from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Dialog, Page

ALL_RULES = '["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]'
RULES_OF_COLOURS = '["color-contrast", "link-in-text-block"]'
JUDGE = """async ([rules, parts]) => {
  const include = window[parts]?.filter((each) => each.isConnected);
  const found = include?.length === 0 ? { violations: [] } : await axe.run(include ?? document, {
    runOnly: JSON.parse(rules),
    resultTypes: ["violations"],
  });
  return found.violations.map((rule) => [rule.id, rule.help, rule.nodes.map((node) => node.html)]);
}"""

END_FADING = """() => document.getAnimations()
  .filter((each) => each.effect?.getComputedTiming().endTime !== Infinity)
  .forEach((each) => each.finish())"""


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
    address: str,
    cookie: str,
    width: int,
    *,
    scripts: bool = True,
    zone: str | None = None,
    wanted: tuple[str, ...] = ("status of 400",),
) -> Iterator[Page]:
    """Yield a page of a browser in a time zone; afterwards nothing may have gone wrong in it but
    what is `wanted`: an answer of 400, which is a page with the reason."""
    problems: list[str] = []
    with shared_browser() as running:
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
        page.on("dialog", partial(_refuse, problems))
        yield page
    unwanted = [each for each in problems if not any(words in each for words in wanted)]
    assert unwanted == [], unwanted


def _refuse(problems: list[str], dialog: Dialog) -> None:
    """Close a dialog, which no page of ours opens."""
    problems.append(f"{dialog.type}: {dialog.message}")
    dialog.dismiss()


def axe_violations(
    page: Page, path: str = "", rules: str = ALL_RULES, parts: str = ""
) -> list[str]:
    """Open `path`, or stay; return a line for each rule of accessibility that the page breaks.
    `parts`: the name of a variable with the elements of the page to judge instead."""
    if path:
        page.goto(path)
    if page.evaluate("typeof axe") == "undefined":  # it takes a while to compile
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate(JUDGE, [rules, parts])
    return [f"{page.url} {rule}: {words} {nodes}" for rule, words, nodes in found]


def show_as(page: Page, scheme: str, width: int) -> None:
    """Look at the page in a colour scheme and width, and wait for what is still fading."""
    page.set_viewport_size({"width": width, "height": 860})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    if page.url != "about:blank":
        page.wait_for_function(
            "(scheme) => document.documentElement.dataset.bsTheme === scheme", arg=scheme
        )
        page.evaluate(END_FADING)
