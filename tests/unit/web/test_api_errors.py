"""`errors` of a problem has one shape; tools can read the document of the API."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from rest_framework.exceptions import APIException

from ipuhub.api.kinds import KINDS, kind_of_code, kind_of_status
from ipuhub.api.problems import by_field, problem
from tests.builders.documents import openapi


@pytest.mark.parametrize(
    ("raised", "want"),
    [
        ({"size": ["must be 1."]}, {"size": ["must be 1."]}),
        ({"size": "must be 1."}, {"size": ["must be 1."]}),
        (["one.", "two."], {"non_field_errors": ["one.", "two."]}),
        ("one.", {"non_field_errors": ["one."]}),
        ({"non_field_errors": ["one."]}, {"non_field_errors": ["one."]}),
        ({"a": {"b": ["one."]}}, {"a.b": ["one."]}),
        ({"a": [{}, {"b": ["two."]}]}, {"a.b": ["two."]}),
        ({"a": {"non_field_errors": ["one."]}}, {"a": ["one."]}),
    ],
)
def test_errors_are_sentences_by_field(raised: Any, want: dict[str, list[str]]) -> None:
    assert by_field(raised) == want


def _all_below(kind: type[Exception]) -> set[type[Exception]]:
    below = set(kind.__subclasses__())
    return below.union(*(_all_below(each) for each in below))


def test_every_error_of_the_api_has_a_kind_of_its_status() -> None:
    views = import_module("dashboard.apiurls")
    assert views
    for error in _all_below(APIException):
        assert KINDS[kind_of_code(error.default_code)].status == error.status_code, error
    for status in (400, 401, 403, 404, 405, 406, 413, 415, 429, 500, 503):
        assert KINDS[kind_of_status(status)].status == status
    with pytest.raises(ValueError, match="no problem of status 404"):
        problem(404, kind="internal-error")
    assert problem(418)["type"] == "urn:ipuhub:problem:invalid-request"


def test_the_document_names_things_as_generators_of_clients_need_it() -> None:
    document = openapi()
    schemas = document["components"]["schemas"]
    assert len({name.strip("_").lower() for name in schemas}) == len(schemas)
    assert [name for name in schemas if not name[0].isupper()] == []
    problem = schemas["Problem"]["properties"]["errors"]
    assert problem["additionalProperties"] == {"type": "array", "items": {"type": "string"}}
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert [each["operationId"] for each in operations if not each.get("summary")] == []
    assert [each["operationId"] for each in operations if "Raises" in each["description"]] == []
    for each in operations:
        asks = [p for p in each.get("parameters", ()) if p["name"] in {"format", "form"}]
        offered = [value for p in asks for value in p["schema"].get("enum", ())]
        kinds = {"csv": "text/csv", "jsonl": "application/x-ndjson", "json": "application/json"}
        for value in offered:
            assert kinds[value] in each["responses"]["200"]["content"], each["operationId"]


def test_a_client_never_gets_a_file_where_it_reads_json() -> None:
    paths = openapi()["paths"]
    for path, methods in paths.items():
        if "get" not in methods:
            continue
        kinds = set(methods["get"]["responses"]["200"]["content"])
        parameters = {each["name"] for each in methods["get"].get("parameters", ())}
        assert "format" not in parameters, path
        if "application/json" in kinds and len(kinds) > 1:
            assert set(paths[path + ".{form}"]["get"]["responses"]["200"]["content"]) == {
                "text/csv",
                "application/x-ndjson",
            }
