"""The API's routes, from the URL table, and their description in the OpenAPI document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.urls import URLResolver, get_resolver, reverse

from ipuhub.api.idempotency import is_idempotent
from tests.builders.documents import openapi
from tests.integration.web.addresses import EXAMPLES, FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = "/api/v1/"
_METHODS: Final = ("get", "post", "put", "patch", "delete")
_ARGUMENT: Final = re.compile(r"<(?:\w+:)?(\w+)>")


class Route(NamedTuple):
    """A route below /api/v1/: `path` as the document has it, `view` its class."""

    name: str
    path: str
    view: type

    @property
    def methods(self) -> list[str]:
        """The methods that it answers, besides HEAD and OPTIONS."""
        known: Any = self.view
        return [
            name for name in _METHODS if name in known.http_method_names and hasattr(known, name)
        ]

    def described(self, method: str) -> dict[str, Any] | None:
        """The operation in the document, None if there is none."""
        found: dict[str, Any] | None = openapi()["paths"].get(self.path, {}).get(method)
        return found

    def takes_key(self, method: str) -> bool:
        """Return whether the method takes an Idempotency-Key."""
        return is_idempotent(self.view, method)

    def address(self, known: Mapping[str, Any]) -> str:
        """The address with the arguments of its example; `known`: values of arguments, also of
        places like `{token}`."""
        example = EXAMPLES.get(self.name) or FORMS[self.name]
        given = {
            name: known.get(str(value).strip("{}"), known.get(name, value))
            for name, value in example.arguments.items()
        }
        return reverse(self.name, kwargs=given)

    def query(self) -> str:
        """The parameters that its example needs."""
        return EXAMPLES[self.name].queries[0]


def api_routes() -> list[Route]:
    """Every route below /api/v1/."""
    return [each for each in _walk(get_resolver(), "", "/") if each.path.startswith(ROOT)]


def _walk(resolver: URLResolver, names: str, before: str) -> Iterator[Route]:
    for each in resolver.url_patterns:
        path = before + str(each.pattern)
        if isinstance(each, URLResolver):
            space = f"{names}{each.namespace}:" if each.namespace else names
            yield from _walk(each, space, path)
        elif view := getattr(each.callback, "cls", None):
            spelt = _ARGUMENT.sub(r"{\1}", path).replace("{pk}", "{id}")
            yield Route(f"{names}{each.name}", spelt, view)


def example_body(operation: Mapping[str, Any]) -> dict[str, Any]:
    """The body that the document has as an example, empty without one."""
    content = operation.get("requestBody", {}).get("content", {})
    examples = content.get("application/json", {}).get("examples", {})
    found: dict[str, Any] = examples.get("Example", {}).get("value", {})
    return found


def answer_schema(operation: Mapping[str, Any], status: int = 200) -> dict[str, Any]:
    """The schema of an operation's answer in JSON, empty without one."""
    content = operation["responses"].get(str(status), {}).get("content", {})
    found: dict[str, Any] = content.get("application/json", {}).get("schema", {})
    return found


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a reference, or the one that is not null."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return resolved(openapi()["components"]["schemas"][name])
    for word in ("allOf", "oneOf", "anyOf"):
        if word in schema:
            parts = [each for each in schema[word] if each.get("type") != "null"]
            real = [each for each in map(resolved, parts) if each.get("enum") != [""]]
            return real[0]
    return schema


def undescribed(value: Any, schema: Mapping[str, Any], where: str) -> set[str]:
    """The fields of an answer that its schema lacks, and those that it lacks of the schema."""
    wrong = set()
    for place, each, found in values_in(value, schema, where):
        fields = found.get("properties")
        is_free = fields is None and ("additionalProperties" in found or "type" not in found)
        if is_free or not isinstance(each, dict):
            continue
        described = set(fields or {})
        wrong |= {f"{place}.{name} is not described" for name in set(each) - described}
        wrong |= {f"{place}.{name} is missing" for name in {*found.get("required", ())} - set(each)}
    return wrong


def values_in(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (where, value, schema) of each value in an answer, also of objects and lists."""
    found = resolved(schema)
    yield where, value, found
    if isinstance(value, dict):
        fields = found.get("properties", {})
        rest = found.get("additionalProperties", {})
        for name, each in value.items():
            below = fields.get(name, rest if isinstance(rest, dict) else {})
            yield from values_in(each, below, f"{where}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from values_in(each, found.get("items", {}), f"{where}[]")
