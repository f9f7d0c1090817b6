"""The table twin of the fleet map: real proxy, real cluster, Postgres."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from dashboard import fleettable
from tests.builders.fleetrows import job_row
from tests.integration.dashboard.test_fleet_page import get_page, hold

if TYPE_CHECKING:
    from django.test import Client

    from tests.fakes.background import Cluster, Proxy

pytestmark = pytest.mark.django_db


def test_the_table_has_every_square_of_the_map(
    admin: Client, cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = hold(cluster, proxy, "bert", "team-a", 4)
    job_row("bert", uid=uid, group="vision")
    assert reverse("fleet-table") in get_page(admin, "/fleet/")
    text = get_page(admin, "/fleet/table/")
    assert text.count("<tr>") == 32 + 1
    assert ">Group</th>" in text
    assert text.count(reverse("jobs:detail", args=[uid])) == 4
    lines = b"".join(admin.get("/fleet/table/?format=json").streaming_content)
    rows = json.loads(lines)
    assert [(row["job"], row["group"]) for row in rows[:5]] == [("bert", "vision")] * 4 + [("", "")]
    assert [row["state"] for row in rows].count("free") == 28
    assert admin.get("/fleet/table/?format=xml").status_code == 400
    monkeypatch.setattr(fleettable, "A_PAGE", 20)
    last = get_page(admin, "/fleet/table/?page=2")
    assert (last.count("<tr>"), "Page 2 of 2" in last) == (12 + 1, True)


def test_the_table_names_nothing_that_one_may_not_see(
    user: Client, cluster: Cluster, proxy: Proxy
) -> None:
    hold(cluster, proxy, "secret", "team-b", 8)
    for form in ("", "?format=csv"):
        answer = user.get(f"/fleet/table/{form}")
        content = b"".join(answer) if answer.streaming else answer.content
        assert b"secret" not in content
        assert b"team-b" not in content
    assert (
        b">Group</th>" not in user.get("/fleet/table/").content
    )  # it would have a dash in each row
