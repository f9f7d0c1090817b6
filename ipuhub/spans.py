"""glue: the index that finds long lifetimes by an instant within them."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.postgres.indexes import GistIndex
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Greatest
from django.db.models.lookups import GreaterThan


def long_lifetimes(began: str, ended: str, *, name: str) -> GistIndex:
    """Return an index of the lifetimes longer than a day by the time that they span.

    Few are, so it costs recorders next to nothing; without it the long ones that reach into a
    range would only be found among all that ever began before it (usage/time/intervals.py asks).
    """
    span = Func(F(began), Greatest(ended, began), Value("()"), function="tstzrange")
    is_long = Q(GreaterThan(F(ended) - F(began), timedelta(days=1)))
    return GistIndex(span, name=name, condition=is_long)
