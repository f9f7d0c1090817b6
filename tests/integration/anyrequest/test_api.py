"""Any request to the API gets a response as in the OpenAPI document, or an error message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from django.utils import timezone
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from ipuhub.api.auth import make_token
from ipuhub.wsgi import application
from tests.builders.clients import api_client
from tests.builders.documents import openapi
from tests.fakes.longform import IS_LONG
from tests.integration.web.addresses import EXAMPLES, api_reads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.auth.models import User
    from schemathesis import Case, CheckFunction


def read_whole(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer as a server does: it closes what it has sent, which frees a download's slot."""
    answer = application(environ, start_response)
    try:
        return [b"".join(answer)]
    finally:
        answer.close()


API = schemathesis.openapi.from_dict(openapi())
API.app = read_whole
API.config.generation.update(with_security_parameters=False)
OPERATIONS = {found.ok().label: found.ok() for found in API.get_all_operations()}
API_READS = api_reads(uid="uid-team-a-train")
NOT_TAGGED = {
    "api-index",
    "api-schema",
    "api-subscription",
    "api-token",
    "api-user-token",
    "job-logs",
    "usage-api:correction-file",
    "usage-api:run-file",
}
"""Calls outside the document, and files that are not there."""
CALLERS = st.sampled_from(["admin", "accountant", "user", "stranger", "nobody"])
ODD = st.sampled_from(
    [
        *[{}] * 4,
        *({"Accept": text} for text in ("x", "", "text/csv", "a/b;q=x", "application/jsonl")),
        *({"If-None-Match": text} for text in ("*", '"a', "\xff", '""')),
    ]
)
VALUES = st.sampled_from(
    [
        "0", "-1", "1" * 400, "9" * 5000, "\0", "\ud7ff\uffff", "'; --", "%", "%s%(x)s", "a,b",
        "namespace,group,user,job,node", "2026-11", "0001-01", "9999-12", "2026-11-31",
        "2026-11-01T00:00:00-23:59", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
        "7d", "999999w", "today,", ",", "hour", "month", "csv", "jsonl", "[[[", "x" * 10_000,
        "WyIyMDI2LTExLTIxIiwxXQ", "WyIwMDAxLTAxLTAxVDAwOjAwOjAwKzIzOjU5IiwxXQ", "label:x",
    ]
)  # fmt: skip
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
SOME = settings(
    max_examples=80 if IS_LONG else 5, derandomize=True, database=None, phases=[Phase.generate]
)
pytestmark = pytest.mark.django_db


def check(case: Case, headers: dict[str, str], checks: list[CheckFunction]) -> None:
    plain = {"Accept-Encoding": "identity"}  # schemathesis unpacks nothing that WSGI answers
    answer = case.call(base_url="https://testserver", headers=headers | plain)
    case.validate_response(answer, checks=checks)
    no_proxy_here = answer.status_code == 503 and case.path.endswith(("/query", "/logs"))
    assert answer.status_code < 500 or no_proxy_here, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == ["application/problem+json"]
        assert answer.json()["detail"].endswith((".", ".'")), answer.json()["detail"]


def described_at(address: str) -> dict[str, Any] | None:
    """The operation of an address in the document, the one with the fewest places."""
    paths = {
        path: each["get"]
        for path, each in openapi()["paths"].items()
        if "get" in each and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), address)
    }
    return paths[min(paths, key=lambda path: path.count("{"))] if paths else None


@pytest.fixture(scope="module")
def tokens(people: dict[str, User]) -> dict[str, str]:
    return {name: make_token(user, "test", timezone.now())[1] for name, user in people.items()}


@pytest.mark.parametrize("name", API_READS)
def test_the_document_names_an_etag_and_304_where_the_answer_has_them(
    name: str, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()  # what counts up to now is another one a second later
    monkeypatch.setattr(timezone, "now", lambda: now)
    address, client = API_READS[name], api_client(people["admin"])
    full = address + EXAMPLES[name].queries[0]  # with what it requires
    first = client.get(full, secure=True)
    if first.streaming:
        b"".join(first)  # frees the download's slot
    described = described_at(address)
    if name in NOT_TAGGED:
        assert described is None or first.status_code != 200, "it belongs among the others"
        return
    assert first.status_code == 200, first.content
    assert described is not None
    headers = described["responses"]["200"].get("headers", {})
    tagged = "ETag" in first.headers, "ETag" in headers, "304" in described["responses"]
    assert len(set(tagged)) == 1, tagged
    if tagged[0]:
        again = client.get(full, secure=True, headers={"If-None-Match": first["ETag"]})
        assert again.status_code == 304


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_values_that_look_like_something_are_answered_or_refused(
    label: str, tokens: dict[str, str]
) -> None:
    operation = OPERATIONS[label]
    names = [each.name for each in operation.query] or ["odd"]

    @SOME
    @given(
        case=operation.as_strategy(),
        query=st.dictionaries(st.sampled_from(names), VALUES, min_size=1, max_size=3),
        odd=ODD,
    )
    def ask(case: Case, query: dict[str, str], odd: dict[str, str]) -> None:
        case.query = query
        check(case, {"Authorization": f"Bearer {tokens['admin']}"} | odd, CHECKS)

    ask()


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_an_answer_is_as_described(label: str, tokens: dict[str, str]) -> None:
    cases = [OPERATIONS[label].as_strategy(generation_mode=mode) for mode in GenerationMode]

    @SOME
    @given(case=st.one_of(*cases), caller=CALLERS, odd=ODD)
    def ask(case: Case, caller: str, odd: dict[str, str]) -> None:
        headers = {"Authorization": f"Bearer {tokens[caller]}"} if caller in tokens else {}
        # A parameter without a value is as if it were not given, so it need not be valid.
        empty = any(value in ("", [], [""]) for value in (case.query or {}).values())
        check(case, headers | odd, CHECKS if empty else [*CHECKS, negative_data_rejection])

    ask()
