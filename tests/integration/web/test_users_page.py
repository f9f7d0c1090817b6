"""The page of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard import users
from ipuhub.api.auth import make_token
from tests.builders.clients import browser
from tests.builders.questions import questions
from tests.builders.roles import grant

if TYPE_CHECKING:
    import pytest
    from django.contrib.auth.models import User

PAGE = "/account/users/"


def test_an_administrator_sees_who_may_do_what(admin: User, alice: User, charlie: User) -> None:
    grant(charlie, "accountant")
    make_token(alice, "<b>night</b>", timezone.now(), scopes="reports")
    page = browser(admin).get(PAGE).content.decode()
    assert "3 users" in page
    assert "team-a" in page
    assert "admin: all namespaces" in page
    assert "accountant: all namespaces" in page
    assert "operator: team-a" in page
    assert "&lt;b&gt;night&lt;/b&gt; (<code>reports</code>), never used" in page


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
    assert questions(many) <= questions(few)
    monkeypatch.setattr(users, "MOST", 5)
    assert "21 users, the first 5 by name" in client.get(PAGE).content.decode()


def test_only_administrators_have_the_tab(admin: User, alice: User) -> None:
    assert PAGE in browser(admin).get("/account/tokens/").content.decode()
    assert PAGE not in browser(alice).get("/account/tokens/").content.decode()
