"""glue: the main navigation, declared once; the active item by the name of the page's URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.urls import reverse

from ipuhub.web.access import is_admin

if TYPE_CHECKING:
    from django.http import HttpRequest


@dataclass(frozen=True, slots=True)
class Entry:
    """One item: its text, the page it leads to, and the names or name prefixes it stands for."""

    label: str
    url_name: str
    covers: tuple[str, ...]
    admins_only: bool = False
    of_usage: bool = False

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
    Entry("Usage", "usage:month", ("usage:",), of_usage=True),
    Entry("Utilization", "utilization", ("utilization",), admins_only=True, of_usage=True),
    Entry("System", "system", ("system",), admins_only=True),
)


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `nav`, the items with address and whether they are active; `usage_on`."""
    match = request.resolver_match
    page = match.view_name if match else ""
    admin = is_admin(request.user)
    return {
        "usage_on": settings.USAGE_ENABLED,
        "nav": [
            (each.label, reverse(each.url_name), each.is_active(page))
            for each in ENTRIES
            if (admin or not each.admins_only) and (settings.USAGE_ENABLED or not each.of_usage)
        ],
    }
