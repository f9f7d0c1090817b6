"""domain: validates values against a schema, with the API server's messages.

It implements the rules that our CRD and the built-in kinds use: types, required fields,
enumerations, minimum and maximum, times, base64, quantities.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devcluster.status import go_value, invalid_value, required, unsupported, wrong_type
from ipuhub.quantities import LARGEST, InvalidQuantity, thousandths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from devcluster.status import FieldError

_DATE_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_QUANTITY: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?")
_MOST: Final = LARGEST - LARGEST % 1000
_QUANTITY_RULE: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_PLAIN_TYPES: Final = {"string": str, "integer": int, "boolean": bool}
_TYPE_NAMES: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
}


@dataclass(frozen=True, slots=True)
class Validator:
    """Checks values; `resolve` follows the references of a schema."""

    resolve: Callable[[Mapping[str, Any]], Mapping[str, Any]]

    def errors(self, value: Any, schema: Mapping[str, Any]) -> list[FieldError]:
        """Return all faults of `value`: missing members first, then in its order."""
        found: list[FieldError] = []
        self._check(value, self.resolve(schema), "", found)
        return found

    def _check(
        self, value: Any, schema: Mapping[str, Any], path: str, found: list[FieldError]
    ) -> None:
        if _is_plainly_right(value, schema) or (value is None and schema.get("nullable")):
            return
        wanted = _wanted_types(schema)
        if wanted and not _is_a(value, wanted):
            kind = _TYPE_NAMES[type(value)]
            detail = f'{path} in body must be of type {",".join(wanted)}: "{kind}"'
            found.append(wrong_type(path, kind, detail))
            return
        if schema.get("enum") and value not in schema["enum"]:
            found.append(unsupported(path, value, schema["enum"]))
        if isinstance(value, str):
            found += _text_errors(value, schema, path)
        elif isinstance(value, dict):
            self._check_object(value, schema, path, found)
        elif isinstance(value, list) and "items" in schema:
            items = self.resolve(schema["items"])
            for at, item in enumerate(value):
                self._check(item, items, f"{path}[{at}]", found)
        elif isinstance(value, (int, float)):
            found += _number_errors(value, schema, path)

    def _check_object(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: str, found: list[FieldError]
    ) -> None:
        start = f"{path}." if path else ""
        missing = [name for name in schema.get("required") or () if name not in value]
        found += [required(f"{start}{name}") for name in missing]
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        for name, item in value.items():
            known = properties.get(name, additional)
            if isinstance(known, dict):
                self._check(item, self.resolve(known), f"{start}{name}", found)


def _wanted_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    if schema.get("x-quantity"):
        return ("number", "string")
    return (schema["type"],) if schema.get("type") else ()


def _is_a(value: Any, wanted: tuple[str, ...]) -> bool:
    found = _TYPE_NAMES[type(value)]
    if found in wanted or (found == "integer" and "number" in wanted):
        return True
    # 2.0 is an integer in JSON schema; decoded JSON keeps it a float.
    return found == "number" and "integer" in wanted and float(value).is_integer()


def _is_plainly_right(value: Any, schema: Mapping[str, Any]) -> bool:
    """The short way for most leaves: a type without any rule, and a value of that type."""
    if len(schema) > 2 or (len(schema) == 2 and "description" not in schema):
        return False
    return type(value) is _PLAIN_TYPES.get(schema.get("type", ""))


def _text_errors(value: str, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    check = _FORMATS.get(schema.get("format", ""))
    if check is not None and not check(value):
        detail = f"{path} in body must be of type {schema['format']}: {go_value(value)}"
        yield wrong_type(path, value, detail)
    if schema.get("x-quantity") and not _QUANTITY.fullmatch(value):
        yield invalid_value(path, value, _QUANTITY_RULE)


def _number_errors(value: float, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    for limit, is_broken, words in (
        (lowest, lowest is not None and value < lowest, "greater"),
        (highest, highest is not None and value > highest, "less"),
    ):
        if is_broken:
            detail = f"{path} in body should be {words} than or equal to {go_value(limit)}"
            yield invalid_value(path, value, detail)


def _is_date_time(value: str) -> bool:
    try:
        dt.datetime.fromisoformat(value[:19])
    except ValueError:
        return False
    return _DATE_TIME.fullmatch(value) is not None


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value.replace("\n", ""), validate=True)
    except ValueError:
        return False
    return True


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "date-time": _is_date_time,
    "byte": _is_base64,
}


def stored_thousandths(amount: str | float) -> int:
    """Return thousandths of a quantity that was stored, as an API server reads it: what exceeds 64
    bits is capped (`resource.Quantity`), and a negative amount counts as none."""
    try:
        return thousandths(amount)
    except InvalidQuantity:
        return 0 if str(amount).startswith("-") else _MOST
