"""Navigation and tabs: entries without access are not shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.builders.roles import grant

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

ALL = ["Month", "Pods", "Gaps", "Faults"]
NAVIGATION = ["Overview", "Jobs", "Queue", "Fleet", "Usage", "Reports", "System"]


def entries(client: Client, path: str) -> list[tuple[str, bool]]:
    """The navigation's: label, and whether it is the page's own."""
    return links_of(client, path, "navbar-nav main-nav")


def tabs(client: Client, path: str) -> list[tuple[str, bool]]:
    return links_of(client, path, "section-tabs")


def links_of(client: Client, path: str, css: str) -> list[tuple[str, bool]]:
    page = client.get(path).content.decode()
    found = re.search(rf'<nav class="{css}.*?</nav>', page, re.DOTALL)
    links = re.findall(r"<a([^>]*)>([^<]+)</a>", found[0]) if found else []
    return [(label, 'aria-current="page"' in attributes) for attributes, label in links]


def labels(client: Client, path: str) -> list[str]:
    return [label for label, _ in tabs(client, path)]


def test_an_accountant_is_offered_all_pages_and_the_others_those_they_may_open(
    client: Client, alice: User
) -> None:
    client.force_login(alice)
    assert labels(client, "/usage/") == ["Month", "Pods", "Gaps"]
    grant(alice, "accountant")
    assert labels(client, "/usage/") == ALL
    assert labels(client, "/usage/reports/") == ["Reports", "Rates"]
    for address in addresses(client):
        assert client.get(address).status_code == 200


def addresses(client: Client) -> list[str]:
    page = client.get("/usage/").content.decode()
    (nav,) = re.findall(r'<nav class="section-tabs".*?</nav>', page, re.DOTALL)
    return re.findall(r'href="([^"]+)"', nav)


@pytest.mark.parametrize(
    ("path", "entry", "tab"),
    [
        ("/queue/", "Queue", "Queue"),
        ("/partitions/query/", "Queue", "Query"),
        ("/fleet/", "Fleet", "Map"),
        ("/partitions/", "Fleet", "Partitions"),
        ("/partitions/stats/", "Fleet", "Stats"),
        ("/usage/", "Usage", "Month"),
        ("/usage/pods/", "Usage", "Pods"),
        ("/utilization/", "Usage", "Utilization"),
        ("/usage/gaps/", "Usage", "Gaps"),
        ("/usage/faults/", "Usage", "Faults"),
        ("/usage/reports/", "Reports", "Reports"),
        ("/usage/rates/", "Reports", "Rates"),
    ],
)
def test_entry_and_tab_of_the_page_are_marked(
    client: Client, admin: User, path: str, entry: str, tab: str
) -> None:
    client.force_login(admin)
    assert [label for label, active in entries(client, path) if active] == [entry]
    assert [label for label, active in tabs(client, path) if active] == [tab]


def test_the_navigation_has_one_order_and_offers_what_one_may_open(
    client: Client, alice: User, admin: User
) -> None:
    found = {}
    for user in (alice, admin):
        client.force_login(user)
        found[user] = [label for label, _ in entries(client, "/jobs/")]
    assert found[admin] == NAVIGATION
    assert found[alice] == [name for name in NAVIGATION if name not in {"Reports", "System"}]


def test_other_pages_and_parts_of_pages_have_no_tabs(client: Client, admin: User) -> None:
    client.force_login(admin)
    assert tabs(client, "/jobs/") == []
    part = client.get("/usage/pods/", headers={"HX-Request": "true"})
    assert "section-tabs" not in part.content.decode()
