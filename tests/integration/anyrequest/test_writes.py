"""Any request to a writing usage endpoint is carried out, or rejected with a message and no effect.

Tries the right names with values of every kind, unknown names, JSON that is not an object, and
bytes that are not JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.builders.clients import api_client
from tests.builders.documents import openapi
from usage.models import Rate, ReportRun

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db
_DOCUMENT = openapi()


def _names(operation: Any) -> list[str]:
    """The names of what the operation takes."""
    shape = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return sorted(_DOCUMENT["components"]["schemas"][shape.rsplit("/", 1)[1]]["properties"])


WRITES = {
    path: _names(each["post"])
    for path, each in _DOCUMENT["paths"].items()
    if path.startswith("/api/v1/usage/") and "post" in each
}
LIKELY = st.sampled_from(
    [
        "cpu", "instance", "accelerator", "big", "0.25", 1, True, "2026-10", "2026-10-01",
        "2026-10-31T12:00:00Z", "2126-01", "2026-13", "details", "primehub", "default", "", None,
        "0001-01-01", "9999-12-31", "10000-01-01", "2026-02-30", "1e5", "Infinity", "-0",
        "9999999999.999999", "1" * 400, 10**400, -1, 1e308, "\0", "a\0b", "x" * 50_000, [1], {},
        "\u202e=1+1", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0001-01",
    ]
)  # fmt: skip
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NUMBERS = st.sampled_from([0, 1, 2**31, 2**63, 10**30])
SOME = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _bodies(names: list[str]) -> st.SearchStrategy[bytes]:
    known = st.dictionaries(st.sampled_from(names), LIKELY | LIKELY | ANY, min_size=1)
    values = known | known | known | st.dictionaries(st.text(), ANY, max_size=3) | ANY
    texts = values.map(lambda value: json.dumps(value).encode())
    return texts | texts | texts | st.binary(max_size=50)


@pytest.mark.parametrize("path", WRITES)
def test_a_write_is_done_once_or_refused_in_words(path: str, people: dict[str, User]) -> None:
    accountant, stranger = api_client(people["accountant"]), api_client(people["stranger"])

    @SOME
    @given(body=_bodies(WRITES[path]), number=st.none() | NUMBERS)
    def write(body: bytes, number: int | None) -> None:
        pk = Rate.objects.latest("pk").pk if number is None else number
        sent = (path.replace("{id}", f"{pk}"), body, "application/json")
        before, runs = _written(), set(ReportRun.objects.values_list("pk", flat=True))
        assert stranger.post(*sent, secure=True).status_code == 403
        assert _written() == before
        answer = accountant.post(*sent, secure=True)
        if answer.status_code in {200, 201, 202}:
            # A run for the same that is under way is not made twice.
            is_known = answer.status_code == 202 and answer.json()["id"] in runs
            is_nothing = is_known or path.endswith("/preview")
            assert len(_written() - before) == (0 if is_nothing else 1), answer.content
            return
        assert 400 <= answer.status_code < 500, answer.content
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["detail"].endswith((".", ".'")), answer.json()["detail"]
        assert _written() == before

    write()


def test_every_address_that_writes_is_tried() -> None:
    assert {path.rsplit("/", 1)[1] for path in WRITES} == {"rates", "preview", "end", "runs"}


def _written() -> set[tuple[Any, ...]]:
    rates = Rate.objects.values_list("pk", "price", "valid_from", "valid_until", "ended_at")
    runs = ReportRun.objects.values_list("pk", "state", "month", "close", "begin", "end")
    return {*rates, *runs}
