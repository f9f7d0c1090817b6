"""domain: label and field selectors as an API server parses them, including its errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from devcluster.storage.metadata import check_key, check_label_value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from devcluster.status import FieldError

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_END = ""
_MANIFEST_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": "gt",
    "Lt": "lt",
}
_OPERATORS = {"=", "==", "!=", "in", "notin", ">", "<"}
_SYMBOLS = {"=", "==", "!=", "!", "(", ")", ",", ">", "<"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: `operator` is in, notin, exists, !, gt or lt; `values` a set of strings."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet the term; an absent label meets `notin`, as on a real
        server."""
        present = self.key in labels
        value = labels.get(self.key, "")
        if self.operator == "in":
            return present and value in self.values
        if self.operator == "notin":
            return not present or value not in self.values
        if self.operator in {"exists", "!"}:
            return present == (self.operator == "exists")
        return present and self._compares(value)

    def _compares(self, value: str) -> bool:
        try:
            left, right = int(value), int(next(iter(self.values)))
        except ValueError:
            return False
        return left > right if self.operator == "gt" else left < right


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A conjunction of requirements; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether the labels of an object (None: it has none) meet every term."""
        return all(term.matches(labels or {}) for term in self.requirements)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of `field=value` and `field!=value` terms (field, equal, value)."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the object's fields meet every term; a missing field reads as empty."""
        return all((field_value(obj, field) == want) == equal for field, equal, want in self.terms)

    def exact(self, field: str) -> str | None:
        """The only value that `field` may have, or None."""
        return next((want for name, equal, want in self.terms if equal and name == field), None)


_ALWAYS_SELECTABLE = frozenset({"metadata.name", "metadata.namespace"})
_EVENT_FIELDS = frozenset({"reason", "reportingComponent", "source", "type"}) | {
    f"{parent}.{name}"
    for parent in ("involvedObject", "regarding")
    for name in (
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    )
}
SELECTABLE_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "pods": frozenset(
            {
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            }
        ),
        "events": _EVENT_FIELDS,
        "namespaces": frozenset({"status.phase"}),
        "nodes": frozenset({"spec.unschedulable"}),
        "secrets": frozenset({"type"}),
    }
)
"""Fields beside name and namespace, by `Kind.resource_name`; all others are refused."""


def selectable_fields(resource_name: str) -> frozenset[str]:
    """The field labels that a list of this resource (`pods`, `leases.coordination...`) accepts."""
    return _ALWAYS_SELECTABLE | SELECTABLE_FIELDS.get(resource_name, frozenset())


def field_value(obj: Mapping[str, Any], field: str) -> str:
    """The value of a dotted field as the text that selectors compare, empty when absent."""
    current: Any = obj
    for part in field.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    if field == "source" and isinstance(current, dict):
        current = current.get("component")
    if field in {"spec.unschedulable", "spec.hostNetwork"}:
        return "true" if current else "false"
    return "" if current is None else str(current)


def parse_label_selector(text: str) -> LabelSelector:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1` as a selector.

    Raises ValueError with the API server's sentence.
    """
    return LabelSelector(tuple(_Parser(text).requirements()))


def selector_of(manifest: Mapping[str, Any]) -> LabelSelector:
    """A LabelSelector of the API (matchLabels, matchExpressions) as a selector."""
    labels, terms = manifest.get("matchLabels"), manifest.get("matchExpressions")
    return LabelSelector(
        (
            *(Requirement(key, "in", frozenset({value})) for key, value in (labels or {}).items()),
            *(
                Requirement(term["key"], _MANIFEST_OPERATORS[term["operator"]], _values_of(term))
                for term in terms or ()
            ),
        )
    )


def _values_of(term: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(term.get("values") or ())


def parse_field_selector(text: str, supported: Collection[str] | None = None) -> FieldSelector:
    """`metadata.name=a,spec.nodeName!=b` as a selector; `\\,`, `\\=` and `\\\\` escape in values.

    With `supported`, any other field is refused. Raises ValueError with the server's sentence.
    """
    terms = tuple(_field_term(term, text) for term in _split_terms(text) if term)
    for field, _equal, _value in terms:
        if supported is not None and field not in supported:
            raise ValueError(f"field label not supported: {field}")
    return FieldSelector(terms)


class _Parser:
    """The recursive descent of the server's selector grammar, over a list of tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text)]
        self._at = 0

    def _look(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> str:
        word = self._look()
        self._at += 1
        return word

    def requirements(self) -> list[Requirement]:
        if self._look() == _END:
            return []
        if not (_is_identifier(self._look()) or self._look() == "!"):
            raise ValueError(f"found '{self._look()}', expected: !, identifier, or 'end of string'")
        found = [self._requirement()]
        while (word := self._take()) != _END:
            if word != ",":
                raise ValueError(f"found '{word}', expected: ',' or 'end of string'")
            if not (_is_identifier(self._look()) or self._look() == "!"):
                raise ValueError(f"found '{self._look()}', expected: identifier after ','")
            found.append(self._requirement())
        return found

    def _requirement(self) -> Requirement:
        try:
            return self._parse_requirement()
        except ValueError as error:
            raise ValueError(f"unable to parse requirement: {error}") from error

    def _parse_requirement(self) -> Requirement:
        word = self._take()
        negated = word == "!"
        key = self._take() if negated else word
        if not _is_identifier(key):
            raise ValueError(f"found '{key}', expected: identifier")
        _refuse(key, check_key("", key))
        if negated:
            return Requirement(key, "!")
        if self._look() in {_END, ","}:
            return Requirement(key, "exists")
        operator = self._take()
        if operator not in _OPERATORS:
            raise ValueError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        return self._with_values(key, operator)

    def _with_values(self, key: str, operator: str) -> Requirement:
        values = self._value_list() if operator in {"in", "notin"} else {self._single_value()}
        for value in values:
            _refuse(key, check_label_value("", value))
        if operator in {">", "<"}:
            if not re.fullmatch(r"[+-]?\d+", next(iter(values))):
                raise ValueError("for 'Gt', 'Lt' operators, the value must be an integer")
            return Requirement(key, "gt" if operator == ">" else "lt", frozenset(values))
        name = {"=": "in", "==": "in", "!=": "notin"}.get(operator, operator)
        return Requirement(key, name, frozenset(values))

    def _single_value(self) -> str:
        if self._look() in {_END, ","}:
            return ""
        word = self._take()
        if not _is_identifier(word):
            raise ValueError(f"found '{word}', expected: identifier")
        return word

    def _value_list(self) -> set[str]:
        word = self._take()
        if word != "(":
            raise ValueError(f"found '{word}' expected: '('")
        values = {self._list_item()}
        while (word := self._take()) == ",":
            values.add(self._list_item())
        if word != ")":
            raise ValueError(f"found '{word}', expected: ',' or ')'")
        return values

    def _list_item(self) -> str:
        if self._look() in {",", ")"}:
            return ""
        word = self._take()
        if not _is_identifier(word):
            raise ValueError(f"found '{word}', expected: ',', ')' or identifier")
        return word


def _is_identifier(token: str) -> bool:
    return token != _END and token not in _SYMBOLS


def _refuse(key: str, faults: list[FieldError]) -> None:
    if faults:
        raise ValueError(f"{faults[0].message.removeprefix('Invalid value: ')}, at key {key!r}")


def _split_terms(text: str) -> list[str]:
    return re.findall(r"(?:\\.|[^,\\]|\\$)+", text)


def _field_term(term: str, selector: str) -> tuple[str, bool, str]:
    match = re.search(r"!=|==|=", term)
    if match is None:
        raise ValueError(f"invalid selector: '{selector}'; can't understand '{term}'")
    return term[: match.start()], match.group() != "!=", _unescape(term[match.end() :])


def _unescape(value: str) -> str:
    text, at = "", 0
    while at < len(value):
        char = value[at]
        if char == "\\":
            following = value[at + 1 : at + 2]
            if following not in {"\\", ",", "="}:
                raise ValueError("invalid field selector: invalid escape sequence")
            text, at = text + following, at + 2
            continue
        if char == "=":
            raise ValueError(f"invalid field selector: unescaped character in value: {ord(char)}")
        text, at = text + char, at + 1
    return text
