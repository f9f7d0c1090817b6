"""The tabs above all pages about usage: what somebody may not open is not offered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.builders.roles import grant

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

ALL = ["Month", "Pods", "Reports", "Rates", "Gaps", "Faults"]


def tabs(client: Client, path: str) -> list[tuple[str, bool]]:
    page = client.get(path).content.decode()
    found = re.search(r'<nav class="section-tabs".*?</nav>', page, re.DOTALL)
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
    for address in addresses(client):
        assert client.get(address).status_code == 200


def addresses(client: Client) -> list[str]:
    page = client.get("/usage/").content.decode()
    (nav,) = re.findall(r'<nav class="section-tabs".*?</nav>', page, re.DOTALL)
    return re.findall(r'href="([^"]+)"', nav)


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/usage/", "Month"),
        ("/usage/pods/", "Pods"),
        ("/usage/reports/", "Reports"),
        ("/usage/rates/", "Rates"),
        ("/usage/gaps/", "Gaps"),
        ("/usage/faults/", "Faults"),
    ],
)
def test_the_tab_of_the_page_is_marked(client: Client, admin: User, path: str, want: str) -> None:
    client.force_login(admin)
    assert [label for label, active in tabs(client, path) if active] == [want]


def test_other_pages_and_parts_of_pages_have_no_tabs(client: Client, admin: User) -> None:
    client.force_login(admin)
    assert tabs(client, "/jobs/") == []
    part = client.get("/usage/pods/", headers={"HX-Request": "true"})
    assert "section-tabs" not in part.content.decode()
