"""domain: values against a structural schema, with the API server's sentences.

The string formats of OpenAPI that an API server checks, and quantities.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import functools
import ipaddress
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from devcluster.status import (
    FieldError,
    duplicate,
    go_value,
    invalid_value,
    required,
    unsupported,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_DURATION = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)([\d.]+(ns|us|µs|ms|s|m|h))*|0")
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?")


def is_format(name: str, value: str) -> bool:
    """Whether `value` has the format; a format that is not checked is always had."""
    check = _CHECKS.get(name)
    return check is None or check(value)


def is_quantity(value: str) -> bool:
    """Whether `value` is a Kubernetes quantity, `500m`, `1Gi`, `2e3`."""
    return _QUANTITY.fullmatch(value) is not None


def _is_date_time(value: str) -> bool:
    match = _DATE_TIME.fullmatch(value)
    return match is not None and _parses(lambda: dt.datetime.fromisoformat(value[:19]))


def _is_base64(value: str) -> bool:
    return _parses(lambda: base64.b64decode(value.replace("\n", ""), validate=True))


def _parses(parse: Callable[[], object]) -> bool:
    try:
        parse()
    except (ValueError, binascii.Error):
        return False
    return True


_CHECKS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "date-time": _is_date_time,
        "date": lambda value: _parses(lambda: dt.date.fromisoformat(value)),
        "byte": _is_base64,
        "ipv4": lambda value: _parses(lambda: ipaddress.IPv4Address(value)),
        "ipv6": lambda value: _parses(lambda: ipaddress.IPv6Address(value)),
        "cidr": lambda value: (
            "/" in value and _parses(lambda: ipaddress.ip_network(value, strict=False))
        ),
        "uuid": lambda value: _UUID.fullmatch(value) is not None,
        "duration": lambda value: _DURATION.fullmatch(value) is not None,
    }
)
_JUNCTORS = frozenset({"anyOf", "oneOf", "allOf", "not"})
_INTEGER_FORMATS = frozenset({"int32", "int64"})
_PLAIN_TYPES = {"string": str, "integer": int, "boolean": bool}
_TYPE_NAMES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
}


@dataclass(frozen=True, slots=True)
class Validator:
    """Checks values; `resolve` follows references and fills in what embedded resources imply."""

    resolve: Callable[[Mapping[str, Any]], Mapping[str, Any]]

    def errors(self, value: Any, schema: Mapping[str, Any], path: str = "") -> list[FieldError]:
        """All faults of `value` at `path`: missing members first, then as the value has them."""
        found: list[FieldError] = []
        self._check(value, self.resolve(schema), path, found)
        return found

    def _check(
        self, value: Any, schema: Mapping[str, Any], path: str, found: list[FieldError]
    ) -> None:
        if _is_plainly_right(value, schema) or (value is None and schema.get("nullable")):
            return
        wanted = _wanted_types(schema)
        if wanted and not _is_a(value, wanted):
            found += _type_errors(value, wanted, schema, path)
            found += _enum_errors(value, schema, path)
            return
        found += _enum_errors(value, schema, path)
        if isinstance(value, str):
            found += _text_errors(value, schema, path)
        elif isinstance(value, dict):
            self._check_object(value, schema, path, found)
        elif isinstance(value, list):
            self._check_array(value, schema, path, found)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found += _number_errors(value, schema, path)
        if not _JUNCTORS.isdisjoint(schema):
            found += self._combined_errors(value, schema, path)

    def _check_object(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: str, found: list[FieldError]
    ) -> None:
        if schema.get("x-kubernetes-embedded-resource"):
            identity = [name for name in ("apiVersion", "kind") if not value.get(name)]
            found += [required(f"{path}.{name}", "must not be empty") for name in identity]
        missing = [name for name in schema.get("required") or () if name not in value]
        found += [required(_join(path, name)) for name in missing]
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        for name, item in value.items():
            known = properties.get(name, additional)
            if isinstance(known, dict):
                self._check(item, self.resolve(known), _join(path, name), found)
        found += _count_errors(len(value), schema, path, "Properties")

    def _check_array(
        self, value: list[Any], schema: Mapping[str, Any], path: str, found: list[FieldError]
    ) -> None:
        found += _count_errors(len(value), schema, path, "Items")
        items = schema.get("items")
        if isinstance(items, dict):
            resolved = self.resolve(items)
            for at, item in enumerate(value):
                self._check(item, resolved, f"{path}[{at}]", found)
        found += _uniqueness_errors(value, schema, path)

    def _combined_errors(
        self, value: Any, schema: Mapping[str, Any], path: str
    ) -> Iterator[FieldError]:
        if "x-kubernetes-int-or-string" not in schema and schema.get("anyOf"):
            alternatives = [self.errors(value, item, path) for item in schema["anyOf"]]
            if all(alternatives):
                yield _combined(path, "must validate at least one schema (anyOf)")
                yield from min(alternatives, key=len)
        if schema.get("oneOf"):
            alternatives = [self.errors(value, item, path) for item in schema["oneOf"]]
            count = sum(1 for errors in alternatives if not errors)
            if count != 1:
                found = f"Found {count} valid alternatives" if count else "Found none valid"
                yield _combined(path, f"must validate one and only one schema (oneOf). {found}")
            if count == 0:
                yield from min(alternatives, key=len)
        failed = [self.errors(value, item, path) for item in schema.get("allOf") or []]
        if any(failed):
            yield from (error for errors in failed for error in errors)
            yield _combined(path, "must validate all the schemas (allOf)")
        if schema.get("not") and not self.errors(value, schema["not"], path):
            yield _combined(path, "must not validate the schema (not)")


def _combined(path: str, detail: str) -> FieldError:
    return FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": "{path}" {detail}')


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _wanted_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    if schema.get("x-quantity"):
        return ("number", "string")
    return (schema["type"],) if schema.get("type") else ()


def _is_a(value: Any, wanted: tuple[str, ...]) -> bool:
    found = _type_of(value)
    if found in wanted or (found == "integer" and "number" in wanted):
        return True
    # 2.0 is an integer in JSON schema; decoded JSON keeps it a float.
    return found == "number" and "integer" in wanted and float(value).is_integer()


def _type_errors(
    value: Any, wanted: tuple[str, ...], schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    """Faults of a value of the wrong type; a fraction is also held against an integer's rules."""
    kind, names, format_ = _type_of(value), ",".join(wanted), schema.get("format", "")
    is_fraction = kind == "number" and wanted == ("integer",)
    if is_fraction and format_ in _INTEGER_FORMATS:
        kind, names = "float64", format_
    yield wrong_type(path, kind, f'{path} in body must be of type {names}: "{kind}"')
    if is_fraction:
        how = f"with format {format_}" if format_ else "(default format)"
        detail = f"Checked value must be of type integer {how} in {path}"
        yield FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {detail}')
        yield from _number_errors(value, schema, path)


def _type_of(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), "array")


def _is_plainly_right(value: Any, schema: Mapping[str, Any]) -> bool:
    """The short way for most leaves: a type without any rule, and a value of that type."""
    if len(schema) > 2 or (len(schema) == 2 and "description" not in schema):
        return False
    return type(value) is _PLAIN_TYPES.get(schema.get("type", ""))


def _enum_errors(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    allowed = schema.get("enum")
    if not allowed:
        return
    if not any(value == item and _type_of(value) == _type_of(item) for item in allowed):
        yield unsupported(path, value, allowed)


def _text_errors(value: str, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        yield invalid_value(path, value, f"{path} in body should be at most {longest} chars long")
    if shortest is not None and len(value) < shortest:
        yield invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
    pattern = schema.get("pattern")
    if pattern and not compile_pattern(pattern).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    wanted = schema.get("format")
    if wanted and not is_format(wanted, value):
        detail = f"{path} in body must be of type {wanted}: {go_value(value)}"
        yield wrong_type(path, value, detail)
    if schema.get("x-quantity") and not is_quantity(value):
        yield invalid_value(
            path,
            value,
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        )


def _number_errors(value: float, schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if lowest is not None:
        exclusive = bool(schema.get("exclusiveMinimum"))
        if value < lowest or (exclusive and value == lowest):
            rule = "greater than" if exclusive else "greater than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {rule} {go_value(lowest)}")
    if highest is not None:
        exclusive = bool(schema.get("exclusiveMaximum"))
        if value > highest or (exclusive and value == highest):
            rule = "less than" if exclusive else "less than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {rule} {go_value(highest)}")
    step = schema.get("multipleOf")
    if step and not float(value / step).is_integer():
        yield invalid_value(path, value, f"{path} in body should be a multiple of {go_value(step)}")


def _count_errors(
    count: int, schema: Mapping[str, Any], path: str, what: str
) -> Iterator[FieldError]:
    """Faults of minItems, maxItems, minProperties and maxProperties."""
    for rule, words in (("min", "at least"), ("max", "at most")):
        limit = schema.get(f"{rule}{what}")
        if limit is None or (count >= limit if rule == "min" else count <= limit):
            continue
        # The server shows the number of items, but the limit of properties.
        shown = count if what == "Items" else limit
        yield invalid_value(
            path, shown, f"{path} in body should have {words} {limit} {what.lower()}"
        )


def _uniqueness_errors(
    value: list[Any], schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in {"map", "set"}:
        return
    keys = schema.get("x-kubernetes-list-map-keys") or []
    seen: list[Any] = []
    for at, item in enumerate(value):
        identity = item
        if kind == "map":
            identity = {key: item[key] for key in keys if isinstance(item, dict) and key in item}
        if identity in seen:
            yield duplicate(f"{path}[{at}]", identity)
        seen.append(identity)


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A schema's pattern as a Python one: in Go, `$` never matches before a last newline.

    Raises re.error.
    """
    translated, escaped, in_class = [], False, False
    for char in pattern:
        if not escaped and not in_class and char == "$":
            translated.append(r"\Z")
        elif escaped and char == "z":
            translated.append("Z")
        else:
            translated.append(char)
        in_class = (not escaped and (char == "[" or (in_class and char != "]"))) or (
            escaped and in_class
        )
        escaped = char == "\\" and not escaped
    return re.compile("".join(translated))
