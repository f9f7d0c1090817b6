"""Tokens of other users: administrators revoke them, and the list of role changes says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.test import Client
from django.utils import timezone

from ipuhub.api.auth import make_token
from ipuhub.models import ApiToken, AuditEntry
from tests.builders.clients import api_client, browser

if TYPE_CHECKING:
    from django.contrib.auth.models import User

NAME = "<img src=x>"


def call(text: str) -> int:
    return Client().get("/api/v1/jobs", headers={"Authorization": f"Bearer {text}"}).status_code


@pytest.mark.parametrize("way", ["page", "call"])
def test_an_administrator_revokes_a_token_of_another_user_and_it_is_recorded(
    admin: User, alice: User, way: str
) -> None:
    token, text = make_token(alice, NAME, timezone.now())
    kept, other = make_token(alice, "other", timezone.now())
    assert call(text) == 200
    if way == "page":
        person = browser(admin)
        page = person.get("/account/users/").content.decode()
        assert f"/account/users/tokens/{token.pk}/revoke" in page
        assert NAME not in page
        answer = person.post(f"/account/users/tokens/{token.pk}/revoke", follow=True)
        assert "of alice no longer works." in answer.content.decode()
    else:
        one = f"/api/v1/users/tokens/{token.pk}"
        program = api_client(admin, "read access")
        assert program.get(one).json()["name"] == NAME
        assert program.delete(one).status_code == 204
        assert [program.get(one).status_code, program.delete(one).status_code] == [404, 404]
    assert (call(text), call(other)) == (401, 200)
    assert ApiToken.objects.filter(user=alice).get() == kept
    (change,) = api_client(admin).get("/api/v1/role-changes?user=alice").json()["results"]
    assert (change["by"], change["role"], change["is_granted"]) == ("root", f"token {NAME}", False)
    page = browser(admin).get("/account/roles/").content.decode()
    assert "token &lt;img src=x&gt;" in page
    assert NAME not in page


def test_other_scopes_and_other_users_revoke_no_token_of_a_user(admin: User, alice: User) -> None:
    token, _text = make_token(alice, "nightly", timezone.now())
    one = f"/api/v1/users/tokens/{token.pk}"
    for client in (api_client(admin, "read write reports"), api_client(alice, "read access")):
        assert client.delete(one).status_code == 403
    assert browser(alice).post(f"/account/users/tokens/{token.pk}/revoke").status_code == 403
    assert browser(admin).post("/account/users/tokens/0/revoke").status_code == 404
    assert ApiToken.objects.filter(pk=token.pk).exists()
    assert not AuditEntry.objects.filter(outcome="accepted").exists()


def test_a_repeated_revocation_is_recorded_once(admin: User, alice: User) -> None:
    token, _text = make_token(alice, "nightly", timezone.now())
    program, key = api_client(admin, "read access"), {"Idempotency-Key": "k1"}
    answers = [program.delete(f"/api/v1/users/tokens/{token.pk}", headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 204]
    assert AuditEntry.objects.count() == 1
