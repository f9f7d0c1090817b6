"""The parts of a role's pages that no page of an administrator has, as axe-core judges them.

The administrator's pages are judged as a whole. A part is known by its elements and their classes,
whatever it says; one that many pages have is judged once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.web.livepages import (
    ALL_RULES,
    RULES_OF_COLOURS,
    axe_violations,
    show_as,
)
from tests.integration.web.looks import Look

if TYPE_CHECKING:
    from playwright.sync_api import Page

LOOKS: Final = (
    Look(390, "light", ALL_RULES),
    Look(768, "light", RULES_OF_COLOURS),
    Look(768, "dark", ALL_RULES),
    Look(390, "dark", RULES_OF_COLOURS),
)
"""A phone and a tablet in both schemes: a scheme is nothing but colours."""
FIND: Final = r"""([html, seen]) => {
  const known = new Set(seen);
  const look = (element) => {
    const [role, type, kind] = ["role", "type", "class"].map((name) => element.getAttribute(name));
    return [element.tagName, role, type, kind?.replace(/\bhtmx-\S+|\d+/g, "")].join(" ");
  };
  const shape = (element) => `${look(element.parentElement)} > ${look(element)}`;
  // What a script draws for everybody is in nobody's HTML.
  const parts = (page) => [...page.body.querySelectorAll("*")].filter(
    (each) => !each.closest("[data-chart], [data-chart] + .usage-legend"));
  const ofAdmin = new DOMParser().parseFromString(html, "text/html");
  for (const each of parts(ofAdmin)) known.add(shape(each));
  window.newParts = parts(document).filter((each) => !known.has(shape(each)));
  return [...new Set(window.newParts.map(shape))];
}"""


class NewParts:
    """Judges what the pages of a reader have that it has not seen."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        self.violations: list[str] = []

    def judge(self, page: Page, of_admin: str) -> None:
        """Judge the open page; `of_admin`: the HTML of the same page for an administrator."""
        new = page.evaluate(FIND, [of_admin, self._seen])
        self._seen += new
        for look in LOOKS if new else ():
            show_as(page, look.scheme, look.width)
            self.violations += axe_violations(page, rules=look.rules, parts="newParts")
