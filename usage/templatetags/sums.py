"""glue: `{{ pods|count }}` and `{% for a, b in one|paired:other %}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from django import template

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")
register = template.Library()


@register.filter
def count(number: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{number:,}"


@register.filter
def paired(rows: Iterable[_T], others: Iterable[object]) -> list[tuple[_T, object]]:
    """Return two lists side by side."""
    return list(zip(rows, others, strict=False))
