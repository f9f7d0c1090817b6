"""Text is read in both themes: at least 4.5 to 1 against what is behind it (WCAG 2.2, 1.4.3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipuhub.web.cells import COLOURS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

STATIC = Path(__file__).resolve().parents[2] / "ipuhub/static/ipuhub"
BADGES = [f"badge bg-{name}-lt" for name in sorted({*COLOURS.values()})]
TEXTS = ["reason reason-never", "reason reason-soon", "reason", "text-red", "target-note"]
# The browser itself paints both colours, so that any notation of CSS is understood.
MEASURE = """(names) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const painted = (...colours) => {
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => {
      const one = part / 255;
      return one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
    });
  };
  const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return Object.fromEntries(names.map((name) => {
    const card = document.createElement("div"), text = document.createElement("span");
    card.className = "card"; text.className = name; text.textContent = "Pending";
    card.append(text); document.body.append(card);
    const behind = [getComputedStyle(card).backgroundColor, getComputedStyle(text).backgroundColor];
    const back = light(painted("#888", ...behind));
    const front = light(painted("#888", ...behind, getComputedStyle(text).color));
    return [name, (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05)];
  }));
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_badges_and_reasons_are_read(browser: Browser, theme: str) -> None:
    page = browser.new_page()
    page.set_content(f"<html data-bs-theme='{theme}'><body></body></html>")
    for sheet in ("vendor/tabler/tabler.min.css", "ipuhub.css"):
        page.add_style_tag(content=(STATIC / sheet).read_text())
    found: dict[str, float] = page.evaluate(MEASURE, BADGES + TEXTS)
    page.close()
    assert {name: round(ratio, 2) for name, ratio in found.items() if ratio < 4.5} == {}
