"""glue: CSV and JSON-lines files of lists and sums, at the URL of the JSON plus `.csv` or `.jsonl`.

Clients generated from the OpenAPI document expect JSON at a JSON URL, so files have their own URLs.
`?format=` and `Accept` at the JSON URL return the same files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.urls import path, register_converter
from rest_framework.exceptions import ValidationError

from ipuhub.api.views import CSV, LINES, MEDIA_TYPES
from ipuhub.web.filters import TOTAL
from ipuhub.web.totals import add_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.urls import URLPattern
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from ipuhub.web.columns import Column

FORM: Final = ".{form}"  # how the address of a file ends in the OpenAPI document
_FILES: Final = (CSV, LINES)
_OF_PAGES: Final = frozenset({"cursor", "page_size", "form"})
_READS: Final = ["get", "head", "options"]
_YES_NO: Final = {"": True, "true": True, "false": False}


class FileForm:
    """The end of the URL of a file, without the dot."""

    regex = "|".join(_FILES)

    def to_python(self, value: str) -> str:
        """Return it as views take it."""
        return value

    def to_url(self, value: str) -> str:
        """Return it as URLs have it."""
        return value


register_converter(FileForm, "fileform")


def with_files(route: str, view: type[APIView], name: str) -> list[URLPattern]:
    """Return the URL patterns of a view and of its files."""
    return [path(route, view.as_view(), name=name), file_of(route, view, f"{name}-file")]


def file_of(route: str, view: type[APIView], name: str) -> URLPattern:
    """Return the URL pattern of a view's files alone, which are read only.

    Views are shared with the URL of the JSON, where a POST may create a row.
    """
    reads = {"__doc__": view.__doc__, "http_method_names": _READS}
    files: type[APIView] = type(view.__name__, (view,), reads)
    return path(f"{route}.<fileform:form>", files.as_view(), name=name)


_TOTAL: Final = {
    "in": "query",
    "name": TOTAL,
    "schema": {"type": "string", "enum": ["yes", "no"], "default": "yes"},
    "description": "`no` leaves out the line of totals. It is the last line of the CSV: its first "
    "column is `total`, and each number is the sum of the printed column.",
}


def describe_file(operation: dict[str, Any], columns: Sequence[Column]) -> None:
    """Turn the description of the JSON response into the description of the file."""
    operation["operationId"] += "_file"
    operation["summary"] += " (file)"
    form = {"type": "string", "enum": list(_FILES)}
    parameters = [p for p in operation["parameters"] if p["name"] not in _OF_PAGES]
    parameters.append(
        {
            "in": "path",
            "name": "form",
            "schema": form,
            "required": True,
            "description": "CSV, or JSON lines.",
        }
    )
    if columns and add_up(columns):
        parameters.append(_TOTAL)
    operation["parameters"] = sorted(parameters, key=lambda each: str(each["name"]))
    kinds = {MEDIA_TYPES[form]: {"schema": {"type": "string"}} for form in _FILES}
    operation["responses"]["200"]["content"] = kinds


def describe_json(operation: dict[str, Any], path: str) -> None:
    """Say where the file is."""
    where = f"Also available as a file: `{path}.csv` and `{path}.jsonl`."
    description = operation.get("description", "")
    operation["description"] = f"{description} {where}".strip()


def read_yes(request: Request, name: str) -> bool:
    """Return a yes/no parameter; `?excel` alone means yes. Raise ValidationError if invalid."""
    text = request.query_params.get(name, "false")
    if text not in _YES_NO:
        raise ValidationError({name: [f"must be true or false, not {text[:80]!r}."]})
    return _YES_NO[text]
