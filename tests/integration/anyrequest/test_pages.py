"""Any request to a usage page gets a page or an error message."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.clients import browser
from usage.sums.measures import DIMENSIONS

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db
PATHS = ["/usage/", "/usage/chart.json", "/usage/pods/", "/usage/gaps/", "/jobs/", "/partitions/"]
NAMES = [
    *DIMENSIONS, "month", "from", "to", "window", "by", "measure", "step", "format", "since",
    "until", "cursor", "page_size", "running", "status", "state", "label:x", "odd",
]  # fmt: skip
ODD = [
    "", "0", "-1", "1" * 400, "9" * 5000, "\0", "\ud7ff\uffff", "'; --", "%", "%s%(x)s", "a,b",
    "namespace,group,user,job,node", "2026-11", "0001-01", "9999-12", "2026-11-31", "1969-01-01",
    "2026-11-01T00:00:00-23:59", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "7d",
    "999999w", "today,", ",", "hour", "month", "csv", "jsonl", "WyIyMDI2LTExLTIxIiwxXQ", "[[[",
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
)


@settings(max_examples=40, derandomize=True, database=None)
@given(
    path=st.sampled_from(PATHS),
    query=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=3),
)
def test_pages_answer_or_refuse(people: dict[str, User], path: str, query: list) -> None:
    answer = browser(people["admin"]).get(f"{path}?{urlencode(query)}", secure=True)
    if answer.streaming:
        assert b"".join(answer) is not None
    assert answer.status_code in {200, 400}
