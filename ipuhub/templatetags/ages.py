"""glue: filters for times: `{{ instant|age:now }}`, `{{ instant|soon:now }}`, `{{ seconds|duration
}}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import template

from ipuhub.text import spell_duration, spell_soon

if TYPE_CHECKING:
    from datetime import datetime

register = template.Library()


@register.filter
def age(instant: datetime | None, now: datetime) -> str:
    """Return how long before `now` an instant was; a dash for none."""
    return "–" if instant is None else spell_duration((now - instant).total_seconds())


@register.filter
def duration(seconds: float | None) -> str:
    """Return a span of time in words; a dash for none."""
    return "–" if seconds is None else spell_duration(seconds)


@register.filter
def soon(instant: datetime, now: datetime) -> str:
    """Return an instant to come, without its date where that is within a day."""
    return spell_soon(instant, now)
