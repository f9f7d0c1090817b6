"""The number of partitions of a size that fit now, by form and by API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from django.test import Client
    from pytest_django import DjangoAssertNumQueries

    from tests.fakes.background import Proxy

pytestmark = pytest.mark.django_db
PAGE, API = "/partitions/query/", "/api/v1/query"


def ask(client: Client, size: Any) -> Any:
    return client.post(API, {"size": size}, content_type="application/json")


def test_the_answer_is_the_proxys(user: Client, proxy: Proxy) -> None:
    proxy.hold("bert", size=4)
    assert ask(user, 4).json() == {"size": 4, "count": 7, "message": "", "available": True}
    text = user.get(f"{PAGE}?size=4").content.decode()
    assert ">7<" in text
    assert 'value="4"' in text


def test_a_size_that_no_partition_has_gets_a_sentence(user: Client, proxy: Proxy) -> None:
    want = "the size of a partition is a power of two: 2 or 4, not 3"
    found = ask(user, 3).json()
    assert (found["count"], found["message"]) == (0, want)
    answer = user.get(f"{PAGE}?size=3")
    assert answer.status_code == 200
    assert f"T{want[1:]}" in answer.content.decode()
    assert "at most 64" in ask(user, 128).json()["message"]


@pytest.mark.parametrize(
    ("size", "want"),
    [
        ("0", "The size must be at least 1 IPU."),
        ("-4", "The size must be at least 1 IPU."),
        ("four", "The size must be a whole number of IPUs, for example 4."),
        ("2.5", "The size must be a whole number of IPUs, for example 4."),
        ("", "Enter a number of IPUs, for example 4."),
        ("99999999999999999999", "The size must be at most 2147483647."),
    ],
)
def test_a_size_of_no_use_is_a_400_with_a_sentence(user: Client, size: str, want: str) -> None:
    answer = user.get(PAGE, {"size": size})
    assert answer.status_code == 400
    assert want in answer.content.decode()


@pytest.mark.parametrize("size", [0, -4, "four", 2.5, None, "", [4], 10**20])
def test_the_api_refuses_it_with_a_sentence_too(user: Client, size: Any) -> None:
    answer = ask(user, size)
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"].startswith("size: ")


def test_no_body_and_no_json_are_refused_in_words(user: Client) -> None:
    for body in ("", "{", "[]", '"x"'):
        answer = user.post(API, body, content_type="application/json")
        assert answer.status_code == 400
        assert answer.json()["detail"]


def test_while_the_proxy_is_away_it_is_said(user: Client) -> None:
    answer = ask(user, 4)
    assert answer.status_code == 503
    assert "The V-IPU Proxy does not answer" in answer.json()["detail"]
    page = user.get(f"{PAGE}?size=4")
    assert page.status_code == 503
    assert "The V-IPU Proxy does not answer" in page.content.decode()
    assert "Traceback" not in page.content.decode()


def test_only_an_administrator_is_told_the_address_of_what_is_away(
    client: Client, proxy: Proxy, django_user_model: Any
) -> None:
    proxy.stop()
    for name, is_staff in (("root", True), ("anna", False)):
        client.force_login(django_user_model.objects.create_user(name, is_staff=is_staff))
        assert (proxy.url in ask(client, 4).json()["detail"]) is is_staff
        assert (proxy.url in client.get(f"{PAGE}?size=4").content.decode()) is is_staff
    proxy.start()


def test_before_any_question_the_page_explains_itself(user: Client) -> None:
    answer = user.get(PAGE)
    assert answer.status_code == 200
    assert "Enter a size" in answer.content.decode()


def test_a_stranger_may_not_ask(client: Client) -> None:
    assert client.get(f"{PAGE}?size=4").status_code == 302
    assert ask(client, 4).status_code == 401


def test_the_page_asks_few_questions(
    user: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(8):
        user.get(f"{PAGE}?size=3")
