"""glue: `manage.py make_builtin_schemas`: the field table of the embedded API's built-in kinds."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from devcluster.schemas.builtin import (
    INT_OR_STRING,
    QUANTITIES,
    REPLACED_TYPES,
    SCHEMAS_FILE,
    definition_name,
)
from devcluster.schemas.kinds import KINDS
from ipuhub.kube.credentials import model_fields, required_fields

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

_SCALARS = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "datetime": "time",
    "bytes": "bytes",
    "object": "any",
}
_WRAPPED = re.compile(r"(List|list|Dict|dict)[\[(](?:str, )?(.*)[\])]")
_VERSION = re.compile(r"^V\d+(?=[A-Z])")


class Command(BaseCommand):
    help = "Derives builtin_schemas.json from the kubernetes package's models."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only say whether it is current")

    def handle(self, *_args: Any, **options: Any) -> None:
        text = render(field_table())
        if not options["check"]:
            SCHEMAS_FILE.write_text(text, encoding="utf-8")
        elif SCHEMAS_FILE.read_text(encoding="utf-8") != text:
            raise CommandError(f"{SCHEMAS_FILE.name} is not current: run make_builtin_schemas")


def render(table: dict[str, dict[str, str]]) -> str:
    """The table as JSON, one type a line, so that a change reads well in a diff."""
    lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def field_table() -> dict[str, dict[str, str]]:
    """Type name -> field -> kind of value, of every type that the served kinds reach."""
    waiting = [_root_model(name) for name in _root_names()]
    table: dict[str, dict[str, str]] = {}
    while waiting:
        model_name = waiting.pop()
        name = _type_name(model_name)
        if name in table:
            continue
        table[name] = dict(sorted(_fields(name, model_name)))
        kinds = [_innermost(kind) for _, kind in model_fields(model_name).values()]
        waiting += [kind for kind in kinds if kind not in _SCALARS]
    return table


def _root_names() -> set[str]:
    own = {definition_name(kind.api_version, kind.kind) for kind in KINDS}
    others = {
        definition_name(f"{sub.group}/{sub.version}", sub.kind)
        for kind in KINDS
        for sub in kind.subresources
        if sub.group
    }
    return own | others | {"Binding", "DeleteOptions", "Scale"}


def _root_model(name: str) -> str:
    return name if re.match(r"[A-Z][a-z]+V\d", name) else f"V1{name}"


def _type_name(model_name: str) -> str:
    return _VERSION.sub("", model_name)


def _fields(name: str, model_name: str) -> Iterator[tuple[str, str]]:
    required = required_fields(model_name)
    for field, (_, kind) in model_fields(model_name).items():
        mark = "!" if field in required else ""
        yield f"{field}{mark}", _kind(name, field, kind)


def _kind(name: str, field: str, kind: str) -> str:
    if f"{name}.{field}" in REPLACED_TYPES:
        return REPLACED_TYPES[f"{name}.{field}"]
    if f"{name}.{field}" in INT_OR_STRING:
        return "intOrString"
    if match := _WRAPPED.fullmatch(kind):
        inner = _kind(name, field, match.group(2))
        return f"[{inner}]" if match.group(1).lower() == "list" else f"{{{inner}}}"
    if f"{name}.{field}" in QUANTITIES:
        return "quantity"
    return _SCALARS.get(kind) or _type_name(kind)


def _innermost(kind: str) -> str:
    while match := _WRAPPED.fullmatch(kind):
        kind = match.group(2)
    return kind
