"""API tokens: made, shown once, used, ended; by page and by command."""

from __future__ import annotations

import datetime as dt
import html
import re
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from rest_framework.views import APIView

from ipuhub.api.auth import make_token, scope_for
from ipuhub.api.scopes import SCOPES
from ipuhub.models import ApiToken, RoleGrant
from ipuhub.models.idempotency import IdempotentRequest
from ipuhub.web.access import scope_of
from tests.builders.clients import api_client, browser

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PAGE = "/account/tokens/"
API = "/api/v1/tokens"
FORM = {"name": "night-job", "days": "30", "scopes": "read"}


def call_api(text: str) -> int:
    return Client().get("/api/v1/jobs", headers={"Authorization": f"Bearer {text}"}).status_code


def make_by_page(user: User, **data: str) -> str:
    answer = browser(user).post(PAGE, {**FORM, **data})
    found = re.search(r'value="(ipuhub_[^"]+)"', answer.content.decode())
    assert found
    return found[1]


def test_a_token_is_shown_once_and_works(alice: User) -> None:
    answer = browser(alice).post(PAGE, FORM)
    created = html.unescape(answer.content.decode())
    found = re.search(r'curl -H "Authorization: Bearer (\S+)" (\S+)</code>', created)
    assert found
    text = found[1]
    assert call_api(text) == 200
    assert found[2] == f"{answer.wsgi_request.build_absolute_uri('/')}api/v1/jobs"
    page = browser(alice).get(PAGE).content.decode()
    assert text not in page
    assert "night-job" in page
    assert not ApiToken.objects.filter(digest=text).exists()


def test_a_revoked_token_no_longer_works(alice: User) -> None:
    text = make_by_page(alice)
    token = ApiToken.objects.get()
    answer = browser(alice).post(f"{PAGE}{token.pk}/revoke", follow=True)
    assert "no longer works" in answer.content.decode()
    assert call_api(text) == 401


def test_a_program_makes_a_token_that_may_do_no_more_than_its_own(alice: User) -> None:
    _own, text = make_token(
        alice, "ci", timezone.now(), timezone.now() + dt.timedelta(days=9), "read access"
    )
    client = Client(headers={"Authorization": f"Bearer {text}"})
    given = {"name": "night", "days": 8, "scopes": ["read"]}
    sent = {"content_type": "application/json", "headers": {"Idempotency-Key": "k"}}
    first, again = (client.post(API, given, **sent) for _ in range(2))
    assert first.status_code == again.status_code == 201, first.content
    made = first.json()["token"]
    assert call_api(made) == 200
    assert again.json() == first.json() | {"token": None}
    assert not IdempotentRequest.objects.filter(body__contains=made).exists()
    listed = client.get(API).json()["results"]
    assert [each["name"] for each in listed] == ["night", "ci"]
    assert made not in f"{listed}{b''.join(client.get(f'{API}.csv'))!r}"
    for more, field in (
        ({"scopes": ["read", "write"]}, "scopes"),
        ({"days": 10}, "days"),
        ({"days": 0}, "days"),
    ):
        answer = client.post(API, given | more, content_type="application/json")
        assert (answer.status_code, list(answer.json()["errors"])) == (400, [field])
    writer = api_client(alice, "read write reports").post(
        API, given, content_type="application/json"
    )
    assert (writer.status_code, writer.json()["scope"]) == (403, "access")
    one = f"{API}/{first.json()['id']}"
    assert client.get(one).json() == listed[0]
    assert client.delete(one).status_code == 204
    assert call_api(made) == 401
    forever = browser(alice).post(API, given | {"days": 0}, content_type="application/json").json()
    assert (forever["expires_at"], call_api(forever["token"])) == (None, 200)


def test_a_stranger_can_neither_see_nor_revoke_a_token(alice: User, charlie: User) -> None:
    text = make_by_page(alice)
    token = ApiToken.objects.get()
    assert "night-job" not in browser(charlie).get(PAGE).content.decode()
    assert browser(charlie).post(f"{PAGE}{token.pk}/revoke").status_code == 404
    assert call_api(text) == 200


def test_an_expired_token_no_longer_works(alice: User) -> None:
    now = timezone.now()
    _token, text = make_token(alice, "old", now, now - dt.timedelta(seconds=1))
    assert call_api(text) == 401
    assert "expired" in browser(alice).get(PAGE).content.decode()


def test_the_last_use_is_kept(alice: User) -> None:
    _token, text = make_token(alice, "used", timezone.now())
    call_api(text)
    assert ApiToken.objects.get().last_used_at is not None


@pytest.mark.parametrize(
    "data", [{"name": " "}, {"days": "99999"}, {"days": "x"}, {"scopes": "all"}, {"scopes": ""}]
)
def test_a_form_of_no_use_makes_no_token(alice: User, data: dict[str, str]) -> None:
    answer = browser(alice).post(PAGE, {**FORM, **data})
    assert answer.status_code == 400
    assert not ApiToken.objects.exists()


def test_a_token_is_refused_what_it_has_no_scope_for(admin: User) -> None:
    calls = {
        "read": api_client(admin, "write reports").get("/api/v1/jobs"),
        "reports": api_client(admin, "read write").get("/api/v1/usage/rates"),
    }
    for scope, answer in calls.items():
        problem = answer.json()
        assert answer.status_code == 403
        assert problem["type"] == "urn:ipuhub:problem:missing-scope"
        assert problem["scope"] == scope
        assert f"does not have the scope '{scope}'" in problem["detail"]
        assert f'error="insufficient_scope", scope="{scope}"' in answer["WWW-Authenticate"]
    assert api_client(admin, "reports").get("/metrics").status_code == 403
    assert api_client(admin, "read").post("/api/v1/query", {"size": 0}).status_code != 403
    assert api_client(admin, "reports").get("/api/v1/usage/rates").status_code == 200
    assert browser(admin).get("/api/v1/usage/rates").status_code == 200


def test_a_scope_gives_no_right_that_the_user_lacks(alice: User) -> None:
    problem = api_client(alice).get("/api/v1/usage/rates").json()
    assert problem["type"] == "urn:ipuhub:problem:forbidden"


def test_a_view_that_changes_something_needs_write_unless_it_says_otherwise() -> None:
    assert scope_for(APIView(), "POST") == "write"
    assert scope_for(APIView(), "GET") == "read"


def test_a_token_of_an_earlier_release_keeps_what_it_could_do(alice: User) -> None:
    make_token(alice, "old", timezone.now())
    assert ApiToken.objects.get().scopes == "read reports"


def test_the_page_offers_and_shows_scopes(alice: User) -> None:
    make_by_page(alice, scopes="reports")
    assert ApiToken.objects.get().scopes == "reports"
    page = browser(alice).get(PAGE).content.decode()
    assert "<code>reports</code></td>" in page
    assert page.count('type="checkbox" name="scopes"') == len(SCOPES)


def test_the_forms_need_their_csrf_token(alice: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(alice)
    answer = strict.post(PAGE, FORM)
    assert answer.status_code == 403
    assert "Reload the page" in answer.content.decode()
    assert not ApiToken.objects.exists()


def test_the_name_of_a_token_is_escaped(alice: User) -> None:
    make_token(alice, "<img src=x>", timezone.now())
    assert "<img src=x>" not in browser(alice).get(PAGE).content.decode()


def test_the_command_prints_a_token_that_works(
    alice: User, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("make_api_token", "alice", "--name", "cron")
    output = capsys.readouterr()
    assert call_api(output.out.strip()) == 200
    assert (
        f'curl -H "Authorization: Bearer {output.out.strip()}" https://localhost/api' in output.err
    )
    assert ApiToken.objects.get().name == "cron"


@pytest.mark.parametrize(
    ("arguments", "want"), [([], 90), (["--days", "7"], 7), (["--days", "0"], None)]
)
def test_a_token_of_the_command_ends_unless_it_is_told_not_to(
    alice: User, arguments: list[str], want: int | None
) -> None:
    began = timezone.now()
    call_command("make_api_token", "alice", *arguments)
    end = ApiToken.objects.get().expires_at
    assert (end and round((end - began) / dt.timedelta(days=1))) == want


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["make_api_token", "nobody"], "user not found: 'nobody'"),
        (["make_api_token", "alice", "--days", "-1"], "--days must be"),
        (["make_api_token", "alice", "--scopes", "all"], "--scopes must be one or more of read"),
        (["grant_namespace", "nobody", "team-a"], "user not found: 'nobody'"),
        (["make_user", "alice"], "user 'alice' already exists"),
        (["make_user", "two words"], "Enter a valid username"),
        (["grant_namespace", "alice", "Team A"], "not a valid namespace name"),
    ],
)
def test_the_commands_say_what_is_wrong(alice: User, arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command(*arguments)


def test_a_namespace_is_granted_and_taken_back(
    charlie: User, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("grant_namespace", "charlie", "team-b")
    call_command("grant_namespace", "charlie", "team-b")
    assert scope_of(charlie).namespaces == {"team-b"}
    assert "charlie has the roles: operator:team-b" in capsys.readouterr().out
    call_command("grant_namespace", "charlie", "team-b", "--revoke")
    assert not RoleGrant.objects.exists()


@pytest.mark.parametrize(("options", "want"), [([], frozenset()), (["--admin"], None)])
def test_a_user_is_made_who_signs_in_and_sees_what_he_may(
    db: None, capsys: pytest.CaptureFixture[str], options: list[str], want: frozenset[str] | None
) -> None:
    call_command("make_user", "dora", *options)
    client = Client()
    answer = client.post(
        "/login/", {"username": "dora", "password": capsys.readouterr().out.strip()}
    )
    assert answer.status_code == 302
    assert client.get("/jobs/").status_code == 200
    assert scope_of(get_user_model().objects.get(username="dora")).namespaces == want
