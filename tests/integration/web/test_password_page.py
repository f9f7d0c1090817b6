"""The page on which people change their own password."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.test import Client

from ipuhub.api.auth import make_token
from tests.builders.ipujobs import NOW

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

PAGE = "/account/password/"
OLD, NEW = "horse battery staple", "correct horse battery"


def signed_in(user: User, password: str) -> Client:
    client = Client()
    assert client.login(username=user.username, password=password)
    return client


def change(client: Client, old: str = OLD, new: str = NEW, again: str = NEW) -> tuple[int, str]:
    fields = {"old_password": old, "new_password1": new, "new_password2": again}
    answer = client.post(PAGE, fields, follow=True)
    return answer.status_code, answer.content.decode()


@pytest.fixture
def ann(alice: User) -> User:
    alice.set_password(OLD)
    alice.save()
    return alice


def test_a_new_password_counts_and_every_other_browser_is_signed_out(ann: User) -> None:
    here, elsewhere = signed_in(ann, OLD), signed_in(ann, OLD)
    code, page = change(here)
    assert (code, "Your password was changed" in page) == (200, True)
    assert here.get(PAGE).status_code == 200
    assert elsewhere.get(PAGE).status_code == 302
    assert not Client().login(username=ann.username, password=OLD)
    assert Client().login(username=ann.username, password=NEW)


def test_tokens_still_work(ann: User) -> None:
    _token, text = make_token(ann, "night-job", NOW)
    change(signed_in(ann, OLD))
    answer = Client().get("/api/v1/jobs", headers={"Authorization": f"Bearer {text}"})
    assert answer.status_code == 200


def test_guesses_of_the_old_password_are_limited_as_at_sign_in(
    ann: User, settings: SettingsWrapper
) -> None:
    settings.LOGIN_FAILURES = 3
    client = signed_in(ann, OLD)
    for _ in range(5):  # a new password of no use is no guess
        assert change(client, again="something else")[0] == 400
    assert [change(client, old="guessed")[0] for _ in range(4)] == [400, 400, 400, 429]
    code, page = change(client)
    assert (code, "Too many attempts with a wrong password. Try again in" in page) == (429, True)
    assert Client().login(username=ann.username, password=OLD)
    # Nor does the sign-in page take more guesses.
    form = {"username": ann.username, "password": "guessed"}
    assert Client().post("/login/", form).status_code == 429


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"old": "guessed"}, "Your old password was entered incorrectly"),
        ({"again": "something else"}, "didn’t match"),
        ({"new": "short", "again": "short"}, "too short"),
        ({"new": "password123", "again": "password123"}, "too common"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_changes(ann: User, fields: dict, want: str) -> None:
    code, page = change(signed_in(ann, OLD), **fields)
    assert code == 400
    assert want in page
    assert Client().login(username=ann.username, password=OLD)


def test_who_signs_in_elsewhere_is_told_so(ann: User) -> None:
    client = signed_in(ann, OLD)
    ann.set_unusable_password()
    ann.save()
    client.force_login(ann)
    page = client.get(PAGE).content.decode()
    assert "You have no IPUHub password" in page
    assert "old_password" not in page


@pytest.mark.django_db
def test_who_is_not_signed_in_is_sent_to_sign_in() -> None:
    answer = Client().get(PAGE)
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next={PAGE}")
