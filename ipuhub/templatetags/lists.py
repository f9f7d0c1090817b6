"""glue: words of the lists' templates."""

from __future__ import annotations

from django import template

register = template.Library()


@register.simple_tag
def count_words(count: int, uncounted: bool, noun: str) -> str:
    """Return `1 job`, `2,000 jobs` or, where counting stopped, `more than 10,000 jobs`."""
    words = f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
    return f"more than {words}" if uncounted else words
