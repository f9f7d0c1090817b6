"""domain: how deep a value of JSON is nested, found without nesting calls as deep."""

from __future__ import annotations

from itertools import chain
from typing import Any


def is_nested_deeper(value: object, levels: int) -> bool:
    """Whether there are objects or lists in `value` below more than `levels` others."""
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not layer:
            return False
        layer = [part for part in chain.from_iterable(map(_parts, layer)) if _is_container(part)]
    return bool(layer)


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list)
