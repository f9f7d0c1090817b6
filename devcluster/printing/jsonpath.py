"""domain: the JSONPath of printer columns and scale subresources.

Members (`.a`, `.a\\.b`, `['a']`), indexes, slices, `[*]` and filters `[?(@.type=="Ready")]`.
"""

from __future__ import annotations

import json
import operator
import re
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MEMBER = re.compile(r"\.((?:\\.|[^.\[\\])+)")
_QUOTED = re.compile(r"\[\s*(?:'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\")\s*\]")
_SLICE = re.compile(r"\[\s*(-?\d*)\s*:\s*(-?\d*)\s*\]")
_INDEX = re.compile(r"\[\s*(-?\d+)\s*\]")
_ALL = re.compile(r"\[\s*\*\s*\]|\.\*")
_FILTER = re.compile(r"\[\?\(\s*@(.*?)\s*(==|!=|>=|<=|>|<)\s*(.*?)\s*\)\]")
_EXISTS = re.compile(r"\[\?\(\s*@([^=<>!]*?)\s*\)\]")


class JsonPathError(ValueError):
    """A path that cannot be read; the message quotes what stands at the fault."""


def find(path: str, obj: Any) -> list[Any]:
    """Every value at `path`, in order; empty where nothing is. Raises JsonPathError."""
    found = [obj]
    for step in _compile(path):
        found = [value for parent in found for value in step(parent)]
    return found


@lru_cache(maxsize=1024)
def _compile(path: str) -> tuple[Callable[[Any], list[Any]], ...]:
    rest = path.strip()
    if rest.startswith("{") and rest.endswith("}"):
        rest = rest[1:-1].strip()
    rest = rest.removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[Callable[[Any], list[Any]]] = []
    while rest:
        if rest == ".":
            break
        step, length = _first_step(rest)
        steps.append(step)
        rest = rest[length:]
    return tuple(steps)


def _first_step(text: str) -> tuple[Callable[[Any], list[Any]], int]:
    for pattern, make_step in _SYNTAX:
        if match := pattern.match(text):
            return make_step(match), match.end()
    raise JsonPathError(f"cannot read the JSONPath at {text!r}")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _member(name: str, value: Any) -> list[Any]:
    return [value[name]] if isinstance(value, dict) and name in value else []


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _slice(part: slice, value: Any) -> list[Any]:
    return value[part] if isinstance(value, list) else []


def _index(at: int, value: Any) -> list[Any]:
    inside = isinstance(value, list) and -len(value) <= at < len(value)
    return [value[at]] if inside else []


def _filter(left: str, relation: str, right: str, value: Any) -> list[Any]:
    return [item for item in _children(value) if _holds(find(left, item), relation, right, item)]


def _holds(left: list[Any], relation: str, right: str, item: Any) -> bool:
    if not relation:
        return bool(left)
    wanted = find(right[1:], item) if right.startswith("@") else [_literal(right)]
    if not left or not wanted:
        return False
    have, want = left[0], wanted[0]
    if relation in {"==", "!="}:
        return bool((have == want) == (relation == "=="))
    try:
        return bool(_COMPARISONS[relation](have, want))
    except TypeError:
        return False


def _literal(text: str) -> Any:
    if text[:1] == text[-1:] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _slice_bounds(match: re.Match[str]) -> slice:
    start, stop = (int(part) if part else None for part in match.groups())
    return slice(start, stop)


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
)
_SYNTAX: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Callable[[Any], list[Any]]]], ...]
_SYNTAX = (
    (_ALL, lambda _match: _children),
    (_MEMBER, lambda match: partial(_member, _unescape(match[1]))),
    (_QUOTED, lambda match: partial(_member, _unescape(match[1] or match[2] or ""))),
    (_SLICE, lambda match: partial(_slice, _slice_bounds(match))),
    (_INDEX, lambda match: partial(_index, int(match[1]))),
    (_FILTER, lambda match: partial(_filter, match[1], match[2], match[3])),
    (_EXISTS, lambda match: partial(_filter, match[1], "", "")),
)
