"""A page used by its keyboard alone: the skip link leads past the header, Tab to all else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

MOST_STOPS: Final = 100
IS_OPENED: Final = "() => document.activeElement === document.body && !location.hash"
HAS_FOCUS: Final = "(each) => each === document.activeElement"
IS_SEEN: Final = """(each) => {
  const { left, right, top, bottom, width, height } = each.getBoundingClientRect();
  const ring = getComputedStyle(each);
  return each.matches(":focus-visible") && width > 0 && height > 0
    && left < innerWidth && top < innerHeight && right > 0 && bottom > 0
    && ring.outlineStyle !== "none" && parseFloat(ring.outlineWidth) >= 2;
}"""
"""It is on the screen, with a ring."""


def tab_to(found: Locator) -> Page:
    """Press Tab until it, a part of the page's content, has the focus, which then is seen; return
    its page."""
    page = found.page
    if page.evaluate(IS_OPENED):
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the content")
        wait_until(lambda: skip.evaluate(IS_SEEN), "the skip link is seen")
        page.keyboard.press("Enter")
        page.wait_for_url("**#content")
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if found.evaluate(HAS_FOCUS):
            break
    else:
        raise AssertionError(f"Tab does not reach {found} in {page.url}")
    # A page scrolls to it smoothly.
    wait_until(lambda: found.evaluate(IS_SEEN), f"{found} is seen to have the focus")
    return page


def press(found: Locator, key: str) -> None:
    """Go to a button or a box, and press it."""
    tab_to(found).keyboard.press(key)


def enter(found: Locator) -> None:
    """Go to a link or to the button of a form, and open what it leads to."""
    page = tab_to(found)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def write(found: Locator, text: str) -> None:
    """Go to a field and write this in place of what is in it."""
    keys = tab_to(found).keyboard
    keys.press("Control+a")
    keys.insert_text(text)
