"""The page of users."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard import users
from ipuhub.api.auth import make_token
from ipuhub.models import RoleGrant
from tests.builders.clients import api_client, browser
from tests.builders.questions import count_queries
from tests.builders.roles import grant

if TYPE_CHECKING:
    import pytest
    from django.contrib.auth.models import User
    from django.test import Client

PAGE = "/account/users/"
API = "/api/v1/"
JSON = "application/json"
_NAMES = ("alice", "charlie")


def test_an_administrator_sees_who_may_do_what(admin: User, alice: User, charlie: User) -> None:
    grant(charlie, "accountant")
    make_token(alice, "<b>night</b>", timezone.now(), scopes="reports")
    type(alice).objects.filter(pk=alice.pk).update(last_login=timezone.now() - timedelta(hours=3))
    page = browser(admin).get(PAGE).content.decode()
    assert "3 users" in page
    assert "team-a" in page
    assert "admin: all namespaces" in page
    assert "accountant: all namespaces" in page
    assert "operator: team-a" in page
    assert ">&lt;b&gt;night&lt;/b&gt;</span> <code>reports</code>" in page
    assert "never used" in page
    alices, charlies = (page.partition(f">{name}<")[2].partition("</tr>")[0] for name in _NAMES)
    assert "3 h ago</time>" in alices
    assert re.search(r'data-label="Last sign-in"[^>]*>never</td>', charlies)


def test_many_tokens_of_one_user_fold_to_one_line(admin: User, alice: User) -> None:
    for number in range(3):
        make_token(alice, f"robot {number}", timezone.now())
    assert "<details><summary>" not in browser(admin).get(PAGE).content.decode()
    make_token(alice, "one more", timezone.now())
    page = browser(admin).get(PAGE).content.decode()
    assert "<details><summary>4 tokens</summary>" in page


def test_the_users_that_the_page_finds_are_a_file_too(
    admin: User, alice: User, charlie: User
) -> None:
    grant(charlie, "accountant")
    make_token(alice, "night", timezone.now())
    at = timezone.now().replace(microsecond=0)
    type(alice).objects.filter(pk=alice.pk).update(last_login=at)
    client = browser(admin)
    lines = [json.loads(line) for line in read(client, f"{PAGE}?format=jsonl").splitlines()]
    assert [line["name"] for line in lines] == ["alice", "charlie", "root"]
    assert lines[2]["roles"] == "admin:*"
    assert lines[0] == {
        "name": "alice",
        "is_active": True,
        "is_external": False,
        "roles": "operator:team-a",
        "last_sign_in": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "created_at": f"{alice.date_joined:%Y-%m-%dT%H:%M:%S.%fZ}",
        "tokens": 1,
    }
    (row,) = csv.DictReader(io.StringIO(read(client, f"{PAGE}?q=CHAR&format=csv")))
    assert (row["name"], row["roles"], row["last_sign_in"]) == ("charlie", "accountant:*", "")
    assert 'href="?q=CHAR&amp;format=csv" download' in client.get(f"{PAGE}?q=CHAR").content.decode()
    assert client.get(f"{PAGE}?format=xml").status_code == 400
    assert browser(charlie).get(f"{PAGE}?format=csv").status_code == 403


def test_a_user_gets_a_file_of_tokens_and_of_nobody_elses(alice: User, charlie: User) -> None:
    make_token(alice, "=night", timezone.now(), scopes="read reports")
    make_token(charlie, "other", timezone.now())
    address = "/account/tokens/"
    (token,) = json.loads(read(browser(alice), f"{address}?format=json"))
    assert (token["name"], token["scopes"]) == ("=night", "read reports")
    assert set(token) == {"name", "scopes", "created_at", "last_used_at", "expires_at"}
    (row,) = csv.DictReader(io.StringIO(read(browser(alice), f"{address}?format=csv")))
    assert (row["name"], row["expires_at"]) == ("'=night", "")
    assert browser(alice).get(f"{address}?format=xml").status_code == 400


def read(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return b"".join(answer.streaming_content).decode()


def test_many_users_cost_no_more_questions(
    admin: User, django_user_model: type[User], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = browser(admin)
    with CaptureQueriesContext(connection) as few:
        client.get(PAGE)
    for number in range(20):
        user = django_user_model.objects.create_user(f"user-{number:02d}")
        make_token(user, "one", timezone.now())
    with CaptureQueriesContext(connection) as many:
        client.get(PAGE)
    assert count_queries(many) <= count_queries(few)
    monkeypatch.setattr(users, "A_PAGE", 5)
    first, last = (client.get(f"{PAGE}?page={number}").content.decode() for number in (1, 5))
    assert "21 users" in first
    assert ("Page 1 of 5" in first, 'rel="next"' in first) == (True, True)
    assert ('rel="next"' in last, "user-19" in last) == (False, True)
    found = client.get(f"{PAGE}?q=USER-1").content.decode()
    assert "10 users with “USER-1” in the name" in found
    assert "?q=USER-1&amp;page=2" in found
    given = {"user": "user-17", "role": "viewer", "namespace": "team-a", "change": "grant"}
    answer = client.post(f"{PAGE}?q=user-17", given)
    assert answer["Location"] == f"{PAGE}?q=user-17"  # where the name was looked up
    assert "viewer: team-a" in client.get(answer["Location"]).content.decode()


def test_the_api_has_the_users_and_changes_roles_by_the_rules_of_the_page(
    admin: User, alice: User, charlie: User
) -> None:
    client = api_client(admin, "access read")
    given = {"user": "charlie", "role": "viewer", "namespace": "team-b"}
    sent = [client.post(f"{API}roles/{change}", given, JSON) for change in ("grant", "grant")]
    assert [each.json() for each in sent] == [{"changed": True}, {"changed": False}]
    assert "viewer: team-b" in browser(admin).get(PAGE).content.decode()
    (found,) = client.get(f"{API}users?name=HARL").json()["results"]
    assert found["roles"] == [{"role": "viewer", "namespace": "team-b", "from_groups": False}]
    (row,) = csv.DictReader(io.StringIO(read(client, f"{API}users.csv?name=HARL")))
    assert (row["name"], row["roles"], row["tokens"]) == ("charlie", "viewer:team-b", "0")
    named = client.get(f"{API}users?sort=name").json()["results"]
    assert [each["name"] for each in named] == ["alice", "charlie", "root"]
    assert named[2]["roles"] == [{"role": "admin", "namespace": "*", "from_groups": False}]
    assert [token["scopes"] for token in named[2]["tokens"]] == ["access read"]
    assert client.post(f"{API}roles/revoke", given, JSON).json() == {"changed": True}
    assert not RoleGrant.objects.filter(user=charlie).exists()
    for wrong, field, words in (
        ({"user": "nobody"}, "user", "no user of this name"),
        ({"namespace": "Team B"}, "namespace", "not a valid namespace"),
        ({"role": "king"}, "role", "not a valid choice"),
        ({"user": "root", "role": "admin", "namespace": "*"}, "user", "your own role admin"),
    ):
        answer = client.post(f"{API}roles/revoke", given | wrong, JSON)
        assert answer.status_code == 400
        assert words in " ".join(answer.json()["errors"][field])
    by = client.get(f"{API}role-changes?by=root").json()["results"]
    assert [row["is_granted"] for row in by] == [False, True]


def test_only_administrators_have_the_tab(admin: User, alice: User) -> None:
    assert PAGE in browser(admin).get("/account/tokens/").content.decode()
    assert PAGE not in browser(alice).get("/account/tokens/").content.decode()
