"""glue: renders the rows of a list in one call, because a template takes ten times as long for each
cell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from django import template
from django.utils.formats import localize
from django.utils.html import conditional_escape, escape
from django.utils.safestring import mark_safe

from ipuhub.templatetags.ages import brief_age
from ipuhub.text import spell_duration
from ipuhub.times import spell_instants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.utils.safestring import SafeString

    from ipuhub.web.cells import Cell

register = template.Library()
_NARROW: Final = 12  # characters that fit a column of a tablet
_EMPTY: Final = '<span class="text-secondary">–</span>'


@register.simple_tag
def table_rows(lines: Iterable[Iterable[Cell]], now: datetime) -> SafeString:
    """Return the rows of a table with these cells, and ages as of `now`."""
    drawn = "".join(f"<tr>{''.join(_draw(cell, now) for cell in line)}</tr>" for line in lines)
    return mark_safe(drawn)  # noqa: S308  # every text in it is escaped


def _draw(cell: Cell, now: datetime) -> str:
    look = cell.look
    inner = _EMPTY if cell.is_empty else _KINDS.get(cell.kind, _draw_text)(cell, now)
    if cell.href:
        inner = f'<a href="{escape(cell.href)}" class="fw-medium">{inner}</a>'
    classes = f' class="{look}"' if look else ""
    return f'<td data-label="{escape(cell.label)}"{classes}>{inner}</td>'


def _text(value: Any) -> str:
    # Of what a page shows, localize() changes fractions alone, and takes its time for all.
    plain = isinstance(value, str | int)
    return conditional_escape(value if plain else localize(value))


def _draw_text(cell: Cell, _now: datetime) -> str:
    text = _text(cell.value)
    return (
        f"<span{_whole(text)}>{text}</span>"
        if cell.is_short
        else f'<span class="long" title="{text}">{text}</span>'
    )


def _whole(text: str) -> str:
    """Return a title for a text that a narrow column may cut."""
    return f' title="{text}"' if len(text) > _NARROW else ""


def _draw_brief(cell: Cell, _now: datetime) -> str:
    text = _text(spell_instants(str(cell.value)))
    return f'<span title="{text}">{text}</span>'


def _draw_badge(cell: Cell, _now: datetime) -> str:
    text = _text(cell.value)
    return f'<span class="badge bg-{escape(cell.colour)}-lt" data-state="{text}">{text}</span>'


def _draw_code(cell: Cell, _now: datetime) -> str:
    text = _text(cell.value)
    return f"<code{_whole(text)}>{text}</code>"


def _draw_log(cell: Cell, _now: datetime) -> str:
    return f'<pre tabindex="0" aria-label="{escape(cell.label)}">{_text(cell.value)}</pre>'


def _draw_age(cell: Cell, now: datetime, words: str = "") -> str:
    instant: Any = cell.value
    age = spell_duration((now - instant).total_seconds())
    title = f"{words}{_spell(instant)} UTC"
    return f'<time datetime="{_iso(instant)}" data-age title="{title}">{age}</time>'


def _draw_ago(cell: Cell, now: datetime) -> str:
    """In its first unit alone: two with "ago" behind them are wider than a tablet has room for."""
    instant: Any = cell.value
    age = brief_age(instant, now)
    iso, title = _iso(instant), _spell(instant)
    return f'<time datetime="{iso}" data-age="brief" title="{title} UTC">{age}</time> ago'


def _draw_duration(cell: Cell, now: datetime) -> str:
    value: Any = cell.value
    if isinstance(value, datetime):
        return _draw_age(cell, now, "since ")
    return f"<span>{spell_duration(value)}</span>"


def _draw_second(cell: Cell, _now: datetime) -> str:
    text = _spell(cell.value)
    return f'<time datetime="{_iso(cell.value)}" title="{text} UTC">{text}</time>'


def _draw_time(cell: Cell, _now: datetime) -> str:
    return f'<time datetime="{_iso(cell.value)}">{_spell(cell.value)[:16]}</time>'


_KINDS: Final[dict[str, Callable[[Cell, datetime], str]]] = {
    "brief": _draw_brief,
    "badge": _draw_badge,
    "code": _draw_code,
    "log": _draw_log,
    "age": _draw_age,
    "ago": _draw_ago,
    "duration": _draw_duration,
    "second": _draw_second,
    "time": _draw_time,
}


def _iso(instant: Any) -> str:
    text: str = instant.astimezone(UTC).isoformat()
    return text


def _spell(instant: Any) -> str:
    """Return an instant as `2026-11-24 09:05:00`, in UTC."""
    text: str = instant.astimezone(UTC).isoformat(" ", "seconds")
    return text[:19]
