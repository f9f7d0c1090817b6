"""glue: the index of the API at /api/v1/, and its reference page at /api/.

Both are built from the URL table and the OpenAPI document, so they cannot name missing endpoints.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import URLResolver, get_resolver, reverse
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from dashboard.apidocument import make_document
from ipuhub.api.kinds import KINDS, PREFIX
from ipuhub.api.views import PlainView
from ipuhub.web.access import signed_in
from ipuhub.web.problems import takes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern
    from django.utils.safestring import SafeString
    from rest_framework.request import Request

_PLACE: Final = re.compile(r"{(\w+)}")
_VALUES: Final = {"uid": "$JOB", "form": "csv", "kind": "summary"}  # UID is a constant of bash
_ARGUMENTS: Final = frozenset("<^")
_METHODS: Final = ("get", "post", "put", "patch", "delete")


class Parameter(NamedTuple):
    """A row of the table of parameters or of fields of a body."""

    name: str
    place: str
    kind: str
    description: str


class Operation(NamedTuple):
    """One operation as the page shows it."""

    method: str
    path: str
    anchor: str
    summary: str
    description: str
    parameters: list[Parameter]
    example: str
    statuses: list[tuple[str, str]]


@extend_schema(exclude=True)
class Index(PlainView):
    """The addresses of the API that need no arguments."""

    token_scope = ""  # each token may see what there is

    def get(self, request: Request) -> Response:
        """Return each address with its name."""
        root = request.build_absolute_uri(reverse("api-index"))
        links = {name: f"{root}{name}" for name in _plain_addresses()}
        page = request.build_absolute_uri(reverse("api-reference"))
        return Response({"version": "v1", "reference": page, "links": links})


def _plain_addresses() -> list[str]:
    from dashboard.apiurls import urlpatterns

    return sorted(set(_walk(urlpatterns, "")))


def _walk(patterns: list[Any], before: str) -> Iterator[str]:
    for each in patterns:
        text = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, text)
        elif text and not set(text) & _ARGUMENTS and _answers_get(each):
            yield text


def _answers_get(pattern: URLPattern) -> bool:
    return hasattr(getattr(pattern.callback, "cls", None), "get")


@require_safe
@signed_in
@takes()
def api_reference(request: HttpRequest) -> HttpResponse:
    """Show every operation, and every kind of error."""
    root = request.build_absolute_uri("/").rstrip("/")
    return render(request, "api.html", {"reference": _reference(get_resolver()), "root": root})


@lru_cache(maxsize=1)
def _reference(_table: URLResolver) -> SafeString:
    """Return what the page says to every caller: to render it takes a third of a second of CPU."""
    context = {"groups": operations_by_tag(), "kinds": KINDS.items(), "prefix": PREFIX}
    return render_to_string("_api.html", context)


def operations_by_tag() -> list[tuple[str, str, list[Operation]]]:
    """Return each tag of the OpenAPI document with its sentence and its operations."""
    document = make_document()
    schemas = document["components"]["schemas"]
    found: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                tag = methods[method]["tags"][0]
                found.setdefault(tag, []).append(_operation(path, method, methods[method], schemas))
    descriptions = {tag["name"]: tag["description"] for tag in document["tags"]}
    return [(tag, descriptions.get(tag, ""), found[tag]) for tag in sorted(found)]


def _operation(
    path: str, method: str, described: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Operation:
    parameters = [
        Parameter(each["name"], each["in"], _kind(each["schema"]), each.get("description", ""))
        for each in described.get("parameters", ())
    ]
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {})
    fields = schemas.get(str(body.get("schema", {}).get("$ref", "")).rpartition("/")[2], {})
    parameters += [
        Parameter(name, "body", _kind(each), each.get("description", ""))
        for name, each in fields.get("properties", {}).items()
    ]
    statuses = [
        (status, str(each.get("description", "")) or "Done.")
        for status, each in sorted(described["responses"].items())
    ]
    return Operation(
        method.upper(),
        path,
        described["operationId"],
        described.get("summary", ""),
        described.get("description", ""),
        parameters,
        _example(method, path, body),
        statuses,
    )


def _example(method: str, path: str, body: Mapping[str, Any]) -> str:
    """Return the operation as a curl command, without its optional parameters."""
    words = ["curl", *([] if method == "get" else ["-X", method.upper()])]
    words.append('-H "Authorization: Bearer $TOKEN"')
    if examples := list(body.get("examples", {}).values()):
        words.append("-H 'Content-Type: application/json'")
        words.append(f"-d {shlex.quote(json.dumps(examples[0]['value']))}")
    return " ".join([*words, f'"$HUB{_PLACE.sub(_value, path)}"'])


def _value(place: re.Match[str]) -> str:
    """Return a value for a part of the address, or the variable that the caller sets."""
    return _VALUES.get(place[1], f"${place[1].upper()}")


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"])
    kind = schema.get("type", "object")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if words == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return f"{words} ({schema['format']})" if "format" in schema else words
