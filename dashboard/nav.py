"""glue: the main navigation and the tabs of its sections; the URL name selects the active entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from ipuhub.web.access import access_of, is_accountant, is_admin
from ipuhub.web.clusterusers import ClusterAway

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import HttpRequest

    from ipuhub.web.access import Caller


@dataclass(frozen=True, slots=True)
class Entry:
    """One item: its text, the page it leads to, and the names or name prefixes it stands for.

    `key`: the letter that opens it after `g`.
    """

    label: str
    url_name: str
    covers: tuple[str, ...]
    admins_only: bool = False
    accountants_only: bool = False
    of_usage: bool = False
    key: str = ""

    def is_active(self, page: str) -> bool:
        """Return whether the page of this URL name belongs to the item."""
        return any(
            page == name or (name[-1] == ":" and page.startswith(name)) for name in self.covers
        )


_REPORTS = (
    "usage:reports",
    "usage:make-reports",
    "usage:make-range",
    "usage:report-groups",
    "usage:statement",
    "usage:review",
)
_RATES = ("usage:rates", "usage:end-rate")
_MAP = ("fleet", "fleet-table", "machine", "ipu")
_PARTITIONS = ("partitions:list", "partitions:stats")
_MONTH, _PODS, _GAPS = ("usage:month",), ("usage:lifetimes",), ("usage:gaps",)
_FAULTS, _UTILIZATION = ("usage:faults",), ("utilization",)
_USAGE = (*_MONTH, *_PODS, *_GAPS, *_FAULTS, *_UTILIZATION)
ENTRIES = (
    Entry("Overview", "overview", ("overview",), key="o"),
    Entry("Jobs", "jobs:list", ("jobs:",), key="j"),
    Entry("Queue", "queue", ("queue", "partitions:query"), key="q"),
    Entry("Fleet", "fleet", (*_MAP, *_PARTITIONS), key="f"),
    Entry("Usage", "usage:month", _USAGE, of_usage=True, key="u"),
    Entry(
        "Reports",
        "usage:reports",
        (*_REPORTS, *_RATES),
        accountants_only=True,
        of_usage=True,
        key="r",
    ),
    Entry("System", "system", ("system",), admins_only=True, key="s"),
)
QUEUE_TABS = (
    Entry("Queue", "queue", ("queue",)),
    Entry("Query", "partitions:query", ("partitions:query",)),
)
FLEET_TABS = (
    Entry("Map", "fleet", _MAP),
    Entry("Partitions", "partitions:list", ("partitions:list",)),
    Entry("Stats", "partitions:stats", ("partitions:stats",)),
)
USAGE_TABS = (
    Entry("Month", "usage:month", _MONTH, of_usage=True),
    Entry("Pods", "usage:lifetimes", _PODS, of_usage=True),
    Entry("Utilization", "utilization", _UTILIZATION, admins_only=True, of_usage=True),
    Entry("Gaps", "usage:gaps", _GAPS, of_usage=True),
    Entry("Faults", "usage:faults", _FAULTS, accountants_only=True, of_usage=True),
)
REPORT_TABS = (
    Entry("Reports", "usage:reports", _REPORTS, accountants_only=True, of_usage=True),
    Entry("Rates", "usage:rates", _RATES, accountants_only=True, of_usage=True),
)
ACCOUNT_TABS = (
    Entry("API tokens", "account-tokens", ("account-tokens",)),
    Entry("Password", "account-password", ("account-password",)),
    Entry("Notifications", "account-notifications", ("account-notifications",)),
    Entry("Users", "account-users", ("account-users",), admins_only=True),
    Entry("Role changes", "role-changes", ("role-changes",), admins_only=True),
    Entry("Audit", "audit", ("audit",)),
    Entry("Help", "help", ("help", "api-reference")),
)


SECTIONS = (QUEUE_TABS, FLEET_TABS, USAGE_TABS, REPORT_TABS, ACCOUNT_TABS)
"""The tabs above the pages of one section."""


def entries_for(user: Caller) -> list[Entry]:
    """Return the pages of the navigation and of the tabs that a user may open."""
    tabs = (tab for section in SECTIONS for tab in section)
    pages = {(each.label, each.url_name): each for each in (*ENTRIES, *tabs)}
    return [each for each in pages.values() if _may_open(user, each)]


def _may_open(user: Caller, entry: Entry) -> bool:
    """Return whether an entry is offered: its page refuses others."""
    if entry.of_usage and not settings.USAGE_ENABLED:
        return False
    if entry.admins_only and not is_admin(user):
        return False
    return not entry.accountants_only or _is_accountant(user)


def _is_accountant(user: Caller) -> bool:
    """Return whether a user sees reports. While Kubernetes is unavailable and would have to decide,
    return False: the page that reports this has a navigation, too."""
    try:
        return is_accountant(user)
    except ClusterAway:
        return False


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `nav` and, on the pages of a section, `tabs`: items with their address and
    whether they are active; `account_menu`: the items of the user's menu; `usage_on`; `may_act`:
    whether the user may change jobs here."""
    match = request.resolver_match
    page = match.view_name if match else ""
    return {
        "usage_on": settings.USAGE_ENABLED,
        # Lazy, so that a fragment, which has no navigation, does not ask what the user may do; and
        # computed once, however often a page names it.
        "nav": SimpleLazyObject(lambda: _nav(request, page)),
        "account_menu": SimpleLazyObject(
            lambda: [item[:2] for item in _items(request, ACCOUNT_TABS, page)]
        ),
        "tabs": SimpleLazyObject(lambda: _tabs(request, page)),
        "may_act": SimpleLazyObject(lambda: _may_act(request)),
    }


def _may_act(request: HttpRequest) -> bool:
    access = access_of(request.user)
    return bool(access.kubernetes_user) and access.operates.namespaces != frozenset()


def _nav(request: HttpRequest, page: str) -> list[tuple[str, str, bool, str]]:
    return [(*_item(each, page), each.key) for each in ENTRIES if _may_open(request.user, each)]


def _tabs(request: HttpRequest, page: str) -> list[tuple[str, str, bool]]:
    for section in SECTIONS:
        if any(tab.is_active(page) for tab in section):
            return _items(request, section, page)
    return []


def _items(
    request: HttpRequest, entries: Iterable[Entry], page: str
) -> list[tuple[str, str, bool]]:
    return [_item(each, page) for each in entries if _may_open(request.user, each)]


def _item(entry: Entry, page: str) -> tuple[str, str, bool]:
    return entry.label, reverse(entry.url_name), entry.is_active(page)
