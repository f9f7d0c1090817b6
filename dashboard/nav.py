"""glue: the main navigation and the tabs of usage and account; active by the URL's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.urls import reverse

from ipuhub.web.access import access_of, is_accountant, is_admin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.http import HttpRequest


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


ENTRIES = (
    Entry("Overview", "overview", ("overview",), key="o"),
    Entry("Jobs", "jobs:list", ("jobs:",), key="j"),
    Entry("Fleet", "fleet", ("fleet", "machine", "ipu"), key="f"),
    Entry("Partitions", "partitions:list", ("partitions:list", "partitions:stats"), key="p"),
    Entry("Query", "partitions:query", ("partitions:query",), key="q"),
    Entry("Usage", "usage:month", ("usage:",), of_usage=True, key="u"),
    Entry("Utilization", "utilization", ("utilization",), admins_only=True, of_usage=True, key="t"),
    Entry("System", "system", ("system",), admins_only=True, key="s"),
)
USAGE_TABS = (
    Entry("Month", "usage:month", ("usage:month",)),
    Entry("Pods", "usage:lifetimes", ("usage:lifetimes",)),
    Entry(
        "Reports",
        "usage:reports",
        (
            "usage:reports",
            "usage:make-reports",
            "usage:make-range",
            "usage:report-groups",
            "usage:statement",
            "usage:review",
        ),
        accountants_only=True,
    ),
    Entry("Rates", "usage:rates", ("usage:rates", "usage:end-rate"), accountants_only=True),
    Entry("Gaps", "usage:gaps", ("usage:gaps",)),
    Entry("Faults", "usage:faults", ("usage:faults",), accountants_only=True),
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


def entries_for(user: AbstractBaseUser | AnonymousUser) -> list[Entry]:
    """Return the pages of the navigation and of the tabs that a user may open."""
    admin, accountant = is_admin(user), is_accountant(user)
    tabs = (*USAGE_TABS, *ACCOUNT_TABS) if settings.USAGE_ENABLED else ACCOUNT_TABS
    return [
        each
        for each in (*ENTRIES, *tabs)
        if (admin or not each.admins_only)
        and (accountant or not each.accountants_only)
        and (settings.USAGE_ENABLED or not each.of_usage)
    ]


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `nav` and, on pages about usage or the account, `tabs`: items with their
    address and whether they are active; `account_menu`: those of the user's menu; `usage_on`;
    `may_act`: whether the user changes jobs here."""
    match = request.resolver_match
    page = match.view_name if match else ""
    admin = is_admin(request.user)
    shown = [
        each
        for each in ENTRIES
        if (admin or not each.admins_only) and (settings.USAGE_ENABLED or not each.of_usage)
    ]
    return {
        "usage_on": settings.USAGE_ENABLED,
        "nav": [(*item, entry.key) for item, entry in zip(_items(shown, page), shown, strict=True)],
        "account_menu": lambda: [item[:2] for item in _items(_account_tabs(request), page)],
        # A function, so that a fragment, which has no tabs, does not ask what the user may do.
        "tabs": lambda: _tabs(request, page),
        "may_act": lambda: _may_act(request),
    }


def _may_act(request: HttpRequest) -> bool:
    access = access_of(request.user)
    return bool(access.kubernetes_user) and access.operates.namespaces != frozenset()


def _account_tabs(request: HttpRequest) -> list[Entry]:
    admin = is_admin(request.user)
    return [tab for tab in ACCOUNT_TABS if admin or not tab.admins_only]


def _tabs(request: HttpRequest, page: str) -> list[tuple[str, str, bool]]:
    if any(tab.is_active(page) for tab in ACCOUNT_TABS):
        return _items(_account_tabs(request), page)
    if not page.startswith("usage:"):
        return []
    accountant = is_accountant(request.user)
    return _items([tab for tab in USAGE_TABS if accountant or not tab.accountants_only], page)


def _items(entries: Iterable[Entry], page: str) -> list[tuple[str, str, bool]]:
    return [(each.label, reverse(each.url_name), each.is_active(page)) for each in entries]
