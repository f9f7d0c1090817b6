"""glue: the main navigation, declared once; the active item by the name of the page's URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.urls import NoReverseMatch, reverse

if TYPE_CHECKING:
    from django.http import HttpRequest


@dataclass(frozen=True, slots=True)
class Entry:
    """One item: its text, the page it leads to, and the names or name prefixes it stands for."""

    label: str
    url_name: str
    covers: tuple[str, ...]

    def is_active(self, page: str) -> bool:
        """Whether the page of this URL name belongs to the item."""
        return any(
            page == name or (name[-1] == ":" and page.startswith(name)) for name in self.covers
        )


ENTRIES = (
    Entry("Overview", "overview", ("overview",)),
    Entry("Jobs", "jobs:list", ("jobs:",)),
    Entry("Partitions", "partitions:list", ("partitions:list", "partitions:stats")),
    Entry("Query", "partitions:query", ("partitions:query",)),
    Entry("Usage", "usage:month", ("usage:",)),
)


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `nav`, the items with address and whether they are active."""
    match = request.resolver_match
    page = match.view_name if match else ""
    found = ((entry, _address(entry.url_name)) for entry in ENTRIES)
    return {"nav": [(entry.label, url, entry.is_active(page)) for entry, url in found if url]}


def _address(url_name: str) -> str:
    try:
        return reverse(url_name)
    except NoReverseMatch:
        return ""
