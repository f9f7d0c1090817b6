"""Whatever is asked of usage, the answer is a page or a refusal in words, never a fault of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.api.document import openapi_text
from tests.builders.clients import browser, tool
from tests.builders.lifetimes import pod

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_DOCUMENT = yaml.safe_load(openapi_text())
ENDPOINTS = {
    path: [each["name"] for each in item["get"].get("parameters", ()) if each["in"] == "query"]
    for path, item in _DOCUMENT["paths"].items()
    if "get" in item and "{" not in path and path.startswith("/api/v1/usage/")
}
NAMES = sorted({name for names in ENDPOINTS.values() for name in names} | {"label:x", "odd"})
ODD = [
    "", "0", "-1", "1" * 400, "9" * 5000, "\0", "\ud7ff\uffff", "'; --", "%", "%s%(x)s", "a,b",
    "namespace,group,user,job,node", "2026-11", "0001-01", "9999-12", "2026-11-31", "1969-01-01",
    "2026-11-01T00:00:00-23:59", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "7d",
    "999999w", "today,", ",", "hour", "month", "csv", "jsonl", "WyIyMDI2LTExLTIxIiwxXQ", "[[[",
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
)
FEW = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FEW
@given(
    path=st.sampled_from(sorted(ENDPOINTS)),
    query=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4),
    accept=st.sampled_from(["*/*", "text/csv", "application/jsonl", "x", ""]),
)
def test_the_api_answers_or_refuses(admin: User, path: str, query: list, accept: str) -> None:
    answer = tool(admin).get(f"{path}?{urlencode(query)}", headers={"Accept": accept})
    if answer.streaming:
        assert b"".join(answer) is not None
    assert answer.status_code < 500
    if answer.status_code != 200:
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["detail"]


@FEW
@given(
    path=st.sampled_from(["/usage/", "/usage/chart.json", "/usage/pods/", "/usage/gaps/"]),
    query=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=3),
)
def test_pages_answer_or_refuse(admin: User, path: str, query: list) -> None:
    answer = browser(admin).get(f"{path}?{urlencode(query)}")
    if answer.streaming:
        assert b"".join(answer) is not None
    assert answer.status_code in {200, 400}


@pytest.mark.parametrize("text", ["%ff", "a%c3", "%ed%a0%80", "%80"])
def test_bytes_that_are_no_text_are_refused(admin: User, text: str) -> None:
    pod("2026-11-20T00:00", "2026-11-20T01:00", group="\ufffd")
    for address in ("/api/v1/usage/summary", "/api/v1/usage/lifetimes", "/api/v1/jobs"):
        answer = tool(admin).get(f"{address}?user={text}")
        assert answer.status_code == 400
        assert answer["Content-Type"] == "application/problem+json"
        assert "not UTF-8" in answer.json()["detail"]
    assert browser(admin).get(f"/usage/pods/?group={text}").status_code == 400
    found = tool(admin).get(f"/api/v1/usage/lifetimes?group={quote(chr(0xFFFD))}").json()
    assert len(found["results"]) == 1  # written out it is a character like any other
