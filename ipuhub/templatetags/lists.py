"""glue: filters for the templates of lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from django import template
from django.utils.html import format_html, format_html_join

from ipuhub.web import filters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

    from django.utils.safestring import SafeString

_T = TypeVar("_T")
register = template.Library()
_CHOICES: Final = re.compile(r"\n*(^\* `[^`]*` - .*$\n?)+", re.MULTILINE)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CAUSES: Final = {"IPUJobFailed": "exited non-zero", "OOMKilled": "out of memory"}
_CLOCK: Final = re.compile(r"^(\d+)(MHz)$")
_EXIT_CODE: Final = re.compile(r" exited with code (\d+)")


@register.simple_tag
def count_words(count: int, uncounted: bool, noun: str) -> str:
    """Return `1 job`, `2,000 jobs` or, where counting stopped, `more than 10,000 jobs`."""
    words = f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
    return f"more than {words}" if uncounted else words


@register.filter
def amount(value: float | Decimal) -> str:
    """Return an amount with as many digits as it deserves: 0, 0.0042, 0.57, 12.3, 1,234."""
    if value == 0:
        return "0"
    if value < 0.1:
        return f"{value:.2g}" if value >= 0.0001 else "< 0.0001"
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


@register.filter
def filter_text(value: str) -> str:
    """Return the text that stands for a value in a filter; for an empty value `(none)`."""
    return filters.filter_text(value)


@register.filter
def in_column(value: float | Decimal) -> str:
    """Return an amount of a column, with two decimals as all of it: 0.00, 0.57, 1,234.00."""
    return "< 0.01" if 0 < value < 0.005 else f"{value:,.2f}"


def in_one_precision(values: Sequence[float]) -> list[str]:
    """Return the amounts of a column with as many decimals as the smallest of them deserves: two to
    four, the same for all."""
    least = min((value for value in values if value > 0), default=1.0)
    decimals = 2 if least >= 0.1 else 3 if least >= 0.01 else 4
    return ["< 0.0001" if 0 < value < 0.00005 else f"{value:,.{decimals}f}" for value in values]


@register.filter
def spaced_unit(text: str) -> str:
    """Return a clock as V-IPU writes it, `1330MHz`, with the space before its unit that every other
    amount of a page has; any other text as it is."""
    return _CLOCK.sub("\\1\u00a0\\2", text)


@register.filter
def in_words(reason: str) -> str:
    """Return a reason as words: `OOMKilled` is `out of memory`, `WorkerLost` is `worker lost`."""
    if reason in _CAUSES:
        return _CAUSES[reason]
    words = _WORDS.findall(reason.removeprefix("IPUJob"))
    return " ".join(word if word.isupper() else word.lower() for word in words) or reason


@register.filter
def cause(reason: str, message: str) -> str:
    """Return why a job failed in a few words: the exit code that its message names, or else its
    reason."""
    found = _EXIT_CODE.search(message) if reason == "IPUJobFailed" else None
    return f"exit code {found[1]}" if found else in_words(reason)


@register.filter
def prose(text: str) -> SafeString:
    """Return a text of the API's document with its code marked, and without the list of choices
    that its type names already."""
    sentence = _CHOICES.sub("", text).strip()
    parts = sentence.split("`")
    return format_html_join(
        "",
        "{}",
        (
            (format_html("<code>{}</code>", each) if n % 2 else each,)
            for n, each in enumerate(parts)
        ),
    )


@register.filter
def count(number: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{number:,}"


@register.filter
def paired(rows: Iterable[_T], others: Iterable[object]) -> list[tuple[_T, object]]:
    """Return two lists side by side."""
    return list(zip(rows, others, strict=False))
