"""glue: filters for times: `{{ instant|age:now }}`, `{{ instant|soon:now }}`, `{{ seconds|duration
}}`; for sentences with times of other programs in them: `{{ sentence|timed }}`, in an attribute
`{{ sentence|spell_times }}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import template
from django.utils.html import format_html, format_html_join

from ipuhub.text import spell_duration, spell_soon
from ipuhub.times import format_time, spell_instants, split_instants

if TYPE_CHECKING:
    from datetime import datetime

    from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def age(instant: datetime | None, now: datetime) -> str:
    """Return how long before `now` an instant was; a dash for none."""
    return "–" if instant is None else spell_duration((now - instant).total_seconds())


@register.filter
def brief_age(instant: datetime, now: datetime) -> str:
    """Return the same in its first unit alone, where there is no room for two: `8 h`."""
    return " ".join(age(instant, now).split()[:2])


@register.filter
def duration(seconds: float | None) -> str:
    """Return a span of time in words; a dash for none."""
    return "–" if seconds is None else spell_duration(seconds)


@register.filter
def soon(instant: datetime, now: datetime) -> str:
    """Return an instant to come, without its date where that is within a day."""
    return spell_soon(instant, now)


@register.filter
def timed(sentence: str) -> SafeString:
    """Return a sentence whose instants are elements, which the switch of the zone reaches."""
    parts = (
        (part if instant is None else _time(instant),)
        for part, instant in split_instants(str(sentence))
    )
    return format_html_join("", "{}", parts)


@register.filter
def spell_times(sentence: str) -> str:
    """Return the same as text."""
    return spell_instants(str(sentence))


def _time(instant: datetime) -> SafeString:
    words = spell_instants(format_time(instant))
    return format_html('<time datetime="{}">{}</time>', instant.isoformat(), words)
