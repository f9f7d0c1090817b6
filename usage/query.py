"""glue: parses the query string of a question about usage, for pages, charts, files and API alike.

Unknown or invalid values raise BadFilter (400) with a message, a namespace that the user may not
see raises PermissionDenied (403). A repeated filter matches any of its values; other parameters
must not be repeated.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import PermissionDenied

from ipuhub.web.access import (
    ACCOUNTANTS_ONLY,
    require_namespaces,
    sees_cost,
    usage_scope_of,
)
from ipuhub.web.exports import known_format
from ipuhub.web.filters import TOTAL, BadFilter, Mistake, filter_value, refuse_unknown, wants_total
from usage.reading import pricing_at
from usage.sums.measures import (
    COST,
    DIMENSIONS,
    LABEL,
    OUTPUTS,
    UnknownDimensionError,
    dimension,
    dimensions,
)
from usage.sums.queries import Question
from usage.time.months import month_bounds
from usage.time.ranges import read_instant, read_window
from usage.time.windows import (
    Month,
    MonthError,
    Window,
    WindowError,
    day_begin,
    local_day,
    named_month,
    period_before,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.http import QueryDict

    from usage.rates.pricing import Pricing
    from usage.sums.measures import Dimension, Output

    Params = Mapping[str, Sequence[str]]

MOST_DIMENSIONS = 10
_OWN = frozenset({"month", "from", "to", "window", "by", "format"})


def given(query: QueryDict) -> dict[str, list[str]]:
    """Return the parameters that have a value."""
    listed = {name: [text for text in query.getlist(name) if text] for name in query}
    return {name: texts for name, texts in listed.items() if texts}


def single_value(params: Params, name: str) -> str:
    """Return the only value of a parameter; empty if it is absent. Raises BadFilter for several
    values."""
    values = params.get(name, ())
    if len(values) > 1:
        raise BadFilter(Mistake(name, "specify it only once."))
    return values[0] if values else ""


def read_question(
    params: Params,
    user: AbstractBaseUser | AnonymousUser,
    now: datetime,
    zone: ZoneInfo,
    *also: str,
) -> Question:
    """Return the question in `params`, without prices; `also` names further parameters that the
    caller reads itself.

    Without `by` everything is one sum. Raises BadFilter and PermissionDenied.
    """
    refuse_unknown(params, {*_OWN, *also, *DIMENSIONS}, _is_label)
    labels = settings.USAGE_LABELS
    try:
        window = read_range(params, now, zone)
    except WindowError as error:
        raise BadFilter(Mistake(error.parameter, error.sentence)) from error
    with _known_dimensions("by"):
        by = dimensions(_names(params.get("by", ())), labels)
    equals = []
    for name, values in params.items():
        if _is_filter(name):
            with _known_dimensions(name):
                equals.append((dimension(name, labels), tuple(map(filter_value, values))))
    scope = usage_scope_of(user)
    require_namespaces(scope, params.get("namespace", ()))
    return Question(scope, window, zone, by, tuple(equals))


def with_prices(question: Question) -> Question:
    """Return the question with its prices, if the user may see them. One query."""
    if not sees_cost(question.scope):
        return question
    return dataclasses.replace(question, pricing=_pricing(question.window, question.zone))


def read_pair(
    params: Params,
    user: AbstractBaseUser | AnonymousUser,
    now: datetime,
    zone: ZoneInfo,
    *also: str,
) -> tuple[Question, Window | None]:
    """Return the question in `params` and the period to compare with, if `compare=before`.

    The prices of the question cover both.
    """
    question = read_question(params, user, now, zone, *also, "compare")
    window = question.window
    try:
        before = period_before(window, zone) if read_compare(params) else None
    except (WindowError, OverflowError, ValueError):
        before = None
    if not sees_cost(question.scope):
        return question, before
    wide = dataclasses.replace(window, begin=before.begin) if before else window
    pricing = _pricing(wide, zone)
    if before and pricing.lost_before and pricing.lost_before <= local_day(window.begin, zone):
        return dataclasses.replace(question, pricing=_pricing(window, zone)), None
    own = pricing.within(window.begin, window.until).currencies
    if len(pricing.currencies) > len(own) == 1:
        pricing = pricing.only(own[0])
    return dataclasses.replace(question, pricing=pricing), before


def read_compare(params: Params) -> bool:
    """Return whether the period before is wanted, too. Raises BadFilter."""
    return _either(params, "compare", "before", "none") == "before"


@contextmanager
def _known_dimensions(name: str) -> Iterator[None]:
    """Raise BadFilter where the parameter of this name has a dimension that does not exist."""
    try:
        yield
    except UnknownDimensionError as error:
        raise BadFilter(Mistake(name[:80], str(error))) from error


def _pricing(window: Window, zone: ZoneInfo) -> Pricing:
    pricing = pricing_at(window.begin, window.until, zone)
    lost = pricing.unnamed_before
    if lost and pricing.names("accelerator") and window.begin < day_begin(lost, zone):
        return dataclasses.replace(pricing, lost_before=lost)
    return pricing


def read_total(params: Params) -> bool:
    """Return whether a CSV is to end with a line of totals. Raises BadFilter."""
    return wants_total(single_value(params, TOTAL))


def _either(params: Params, name: str, first: str, second: str) -> str:
    """Return the parameter, which is one of two words, or empty. Raises BadFilter."""
    text = single_value(params, name)
    if text not in {"", first, second}:
        raise BadFilter(Mistake(name, f"must be {first} or {second}, not {text[:80]!r}."))
    return text


def read_format(params: Params) -> str:
    """Return the requested file format, or empty. Raises BadFilter."""
    kind = single_value(params, "format")
    return known_format(kind) if kind else ""


def read_output(params: Params, question: Question) -> Output:
    """Return the requested measure; the default is IPU-hours of pods.

    Raises BadFilter, and PermissionDenied for the cost if the user may not see it.
    """
    name = single_value(params, "measure") or "ipu_hours"
    if name == COST.name:
        if not sees_cost(question.scope):
            raise PermissionDenied(ACCOUNTANTS_ONLY)
        return COST
    if name not in OUTPUTS:
        known = ", ".join([*OUTPUTS, COST.name])
        raise BadFilter(Mistake("measure", f"{name!r} is unknown. Valid measures: {known}."))
    return OUTPUTS[name]


def read_month(params: Params, now: datetime, zone: ZoneInfo) -> Month:
    """Return the requested month; the default is the current month. Raises MonthError and
    BadFilter."""
    this = Month.of(now, zone)
    text = single_value(params, "month")
    month = Month.parse(text) if text else this
    if month > this:
        raise MonthError(f"{month} has not begun yet. The last month with usage is {this}.")
    return month


def read_range(params: Params, now: datetime, zone: ZoneInfo) -> Window:
    """Return the requested range: by month, by window, or by from and to; this month by default.

    Raises BadFilter and WindowError.
    """
    begin, end, name = (single_value(params, each) for each in ("from", "to", "window"))
    ways = [bool(single_value(params, "month")), bool(name), bool(begin or end)]
    if sum(ways) > 1:
        raise WindowError("Specify either month, or window, or from and to.")
    if month := named_month(name, now, zone):
        return _month_window(month, now, zone)
    if name:
        with _named("window"):
            bounds = read_window(name, now, zone)
        return Window.of(*bounds, now)
    if not begin and not end:
        with _named("month"):
            month = read_month(params, now, zone)
        return _month_window(month, now, zone)
    last = _bound("to", end, zone) if end else now
    if not begin:
        raise WindowError("required for a range, for example from=2026-11-01.", "from")
    return Window.of(_bound("from", begin, zone), last, now)


def _month_window(month: Month, now: datetime, zone: ZoneInfo) -> Window:
    span = month_bounds(month, zone)
    return Window.of(span.first, span.end, now)


def _bound(name: str, text: str, zone: ZoneInfo) -> datetime:
    with _named(name):
        return read_instant(text, zone, end=name == "to")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the parameter of what is refused within."""
    try:
        yield
    except MonthError as error:
        raise WindowError(str(error), name) from error
    except WindowError as error:
        raise WindowError(error.sentence, name) from error


def _names(values: Sequence[str]) -> list[str]:
    """Return the names of `by=group,user` or of `by=group&by=user`."""
    names = [name for text in values for name in text.split(",") if name]
    if values and not names:
        raise BadFilter(Mistake("by", "specify at least one dimension, or leave it out."))
    if len(names) > MOST_DIMENSIONS:
        raise BadFilter(Mistake("by", f"at most {MOST_DIMENSIONS} dimensions are allowed."))
    return names


def _is_filter(name: str) -> bool:
    return name in DIMENSIONS or _is_label(name)


def _is_label(name: str) -> bool:
    return name.startswith(LABEL)


def names_of(by: Sequence[Dimension]) -> list[str]:
    """Return the names of dimensions, as they stand in URLs and files."""
    return [each.name for each in by]
