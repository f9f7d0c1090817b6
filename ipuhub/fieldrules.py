"""domain: reads objects that others wrote, by a table of their fields' rules.

What breaks its rule is dropped here, before anything else reads it, so that no reader has to expect
it. A rule is:

- a type of msgspec for a single value, bounds included, or a subclass of CheckedText;
- a dict of the rules of fields, or of EVERY key. Fields without a rule pass;
- a list of the one rule of all its entries;
- `Needed(rule)`, for a field without which its object says nothing and is dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

EVERY: Final = ""
SCALAR: Final = str | int | float | bool
_DROPPED: Final = object()


class Needed(NamedTuple):
    """The rule of a field that its object must have."""

    rule: Any


class CheckedText(ABC):
    """A text that a subclass accepts."""

    @staticmethod
    @abstractmethod
    def is_valid(text: str) -> bool:
        """Return whether the text keeps the rule."""


class Read(NamedTuple):
    """A value as read; None if nothing is left of it. `malformed`: the paths of dropped values."""

    value: Any
    malformed: tuple[str, ...] = ()


class FieldReader:
    """Reads values by one rule; `name` begins each path. A null is a missing field where
    `is_null_missing`, else malformed."""

    def __init__(self, rule: Any, name: str = "", *, is_null_missing: bool = False) -> None:
        self._rule, self._name, self._is_null_missing = rule, name, is_null_missing

    def read(self, value: object) -> Read:
        """Return the value without what is malformed in it: the same object if nothing is."""
        if self.is_whole(value):
            return Read(value)
        malformed: list[str] = []
        found = self._read(value, self._rule, self._name, malformed)
        return Read(None if found is _DROPPED else found, tuple(malformed))

    def is_whole(self, value: object) -> bool:
        """Return whether nothing is malformed, in a twentieth of the time of reading."""
        return _is_of(value, self._type)

    @cached_property
    def _type(self) -> Any:
        return _type_of(self._rule)

    def _read(self, value: Any, rule: Any, path: str, malformed: list[str]) -> Any:
        rule = rule.rule if isinstance(rule, Needed) else rule
        if isinstance(rule, dict):
            if isinstance(value, dict):
                return self._read_fields(value, rule, path, malformed)
        elif isinstance(rule, list):
            if isinstance(value, list):
                return self._read_entries(value, rule[0], path, malformed)
        elif type(value) is rule or _is_of(value, rule):
            return value
        malformed.append(path)
        return _DROPPED

    def _read_fields(
        self, value: dict[str, Any], rules: dict[str, Any], path: str, malformed: list[str]
    ) -> Any:
        if EVERY in rules:
            rules = dict.fromkeys(value, rules[EVERY])
        before, read = len(malformed), dict(value)
        for name, rule in rules.items():
            if name not in value:
                continue
            place = f"{path}.{name}" if path else name
            is_missing = value[name] is None and self._is_null_missing
            found = _DROPPED if is_missing else self._read(value[name], rule, place, malformed)
            if found is _DROPPED:
                del read[name]
            else:
                read[name] = found
        if all(name in read for name, rule in rules.items() if isinstance(rule, Needed)):
            return read
        if len(malformed) == before:
            malformed.append(path)
        return _DROPPED

    def _read_entries(
        self, value: list[Any], rule: Any, path: str, malformed: list[str]
    ) -> list[Any]:
        read = [self._read(each, rule, f"{path}[{n}]", malformed) for n, each in enumerate(value)]
        return [each for each in read if each is not _DROPPED]


def _is_of(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, dec_hook=_checked)
    except msgspec.ValidationError:
        return False
    return True


def _checked(kind: type[CheckedText], value: object) -> CheckedText:
    if not isinstance(value, str) or not kind.is_valid(value):
        raise ValueError("refused")
    return kind()


def _type_of(rule: Any) -> Any:
    """Return a rule as a type of msgspec, which checks a value in C."""
    if isinstance(rule, list):
        return list[_type_of(rule[0])]  # type: ignore[misc]
    if not isinstance(rule, dict):
        return rule
    if EVERY in rule:
        return dict[str, _type_of(rule[EVERY])]  # type: ignore[misc]
    needed = [(n, _type_of(r.rule)) for n, r in rule.items() if isinstance(r, Needed)]
    # A default is not checked: a field that is there has its type, null is no value of it.
    others = [(n, _type_of(r), None) for n, r in rule.items() if not isinstance(r, Needed)]
    return msgspec.defstruct("Fields", [*needed, *others], gc=False)
