"""Invalid bodies, methods and queries get an error message, whatever they contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.api.parsing import MOST_BYTES
from tests.builders.clients import api_client, browser

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"\0", 400, "is not JSON"),
        (b"\xff", 400, "is not UTF-8 text"),
        (b'{"name": "\\ud800"}', 400, "is not UTF-8 text"),
        (b'{"price": NaN}', 400, "NaN is not a number"),
        (b'{"price": 1e999}', 400, "resource: This field is required."),
        (b"9" * 5000, 400, "is not JSON"),
        (b"null", 400, "is not a JSON object"),
        (b"[{}]", 400, "is not a JSON object"),
        (b"[" * 50_000, 400, "nested too deeply"),
        (b'{"a":' * 10_000, 400, "nested too deeply"),
        (b" " * MOST_BYTES + b"{}", 413, "at most 64 KiB"),
    ],
)
def test_a_body_of_no_use_is_refused_in_words(
    people: dict[str, User], body: bytes, status: int, words: str
) -> None:
    answer = api_client(people["admin"]).post(
        "/api/v1/usage/rates", body, content_type="application/json", secure=True
    )
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "x", "a/b;c"])
def test_a_body_that_is_no_json_is_refused(people: dict[str, User], kind: str) -> None:
    answer = api_client(people["admin"]).post(
        "/api/v1/query", b"{}", content_type=kind, secure=True
    )
    assert answer.status_code == 415
    assert "Unsupported media type" in answer.json()["detail"]


@pytest.mark.parametrize("method", ["head", "options", "trace", "put", "patch", "delete"])
@pytest.mark.parametrize("address", ["/api/v1/jobs", "/api/v1/query", "/api/v1/usage/rates/1/end"])
def test_another_method_is_answered_or_refused_in_words(
    people: dict[str, User], method: str, address: str
) -> None:
    answer = getattr(api_client(people["admin"]), method)(address, secure=True)
    assert answer.status_code in {200, 405}
    if answer.status_code == 405 and method != "head":
        assert answer.json()["detail"] == f'Method "{method.upper()}" not allowed.'


def test_a_browser_that_sends_no_csrf_token_is_told_so(people: dict[str, User]) -> None:
    person = browser(people["admin"])
    person.handler.enforce_csrf_checks = True
    answer = person.post("/api/v1/query", {"size": 1}, "application/json", secure=True)
    assert answer.status_code == 403
    assert answer.json()["detail"].endswith(".")


@pytest.mark.parametrize("name", ["summary", "series", "lifetimes", "partitions", "capacity"])
@pytest.mark.parametrize("query", ["cursor=WyIyMDI2Il0", "page_size=0", "page_size=x"])
def test_a_page_of_a_file_is_refused(people: dict[str, User], name: str, query: str) -> None:
    address = f"/api/v1/usage/{name}?format=csv&{query}"
    answer = api_client(people["admin"]).get(address, secure=True)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(query.partition("=")[0] + ": ")
