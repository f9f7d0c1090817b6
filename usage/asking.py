"""glue: reads what is asked for from a query string, alike for page, chart, files and API.

What is not understood is refused with a sentence (BadFilter: 400), and a namespace one may not
see with PermissionDenied (403).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError

from ipuhub.months import Month, MonthError
from ipuhub.web.access import require_namespace, scope_of
from ipuhub.web.filters import BadFilter, InstantField
from usage.dimensions import DIMENSIONS, UnknownDimensionError, dimension
from usage.measures import OUTPUTS
from usage.selectors import Question
from usage.windows import Window, WindowError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

    from usage.measures import Output

LONGEST_VALUE = 500
_OWN = frozenset({"month", "from", "to", "by", "format", *DIMENSIONS})


def read_question(
    params: Mapping[str, str],
    user: AbstractBaseUser | AnonymousUser,
    now: datetime,
    zone: ZoneInfo,
    *also: str,
) -> Question:
    """Return what `params` ask for; `also` names further parameters the caller reads itself.

    Without `by` everything is one sum. Raises BadFilter and PermissionDenied.
    """
    _refuse_unknown(params, _OWN | set(also))
    equals = {name: params[name] for name in DIMENSIONS if params.get(name)}
    if "namespace" in equals:
        require_namespace(user, equals["namespace"])
    try:
        window = _window(params, now, zone)
        by = dimension(params["by"]) if params.get("by") else None
    except (MonthError, WindowError, UnknownDimensionError) as error:
        raise BadFilter([str(error)]) from error
    return Question(scope_of(user), window, zone, by, equals)


def read_output(params: Mapping[str, str]) -> Output:
    """Return the measure asked for, IPU-hours of pods by default. Raises BadFilter."""
    name = params.get("measure") or "ipu_hours"
    if name not in OUTPUTS:
        raise BadFilter([f"measure: {name!r} is not measured. Known: {', '.join(OUTPUTS)}."])
    return OUTPUTS[name]


def read_month(params: Mapping[str, str], now: datetime, zone: ZoneInfo) -> Month:
    """Return the month asked for, this one by default. Raises MonthError."""
    this = Month.of(now, zone)
    month = Month.parse(params["month"]) if params.get("month") else this
    if month > this:
        raise MonthError(f"{month} has not begun yet: there is usage up to {this}.")
    return month


def _window(params: Mapping[str, str], now: datetime, zone: ZoneInfo) -> Window:
    begin, end = _instant(params, "from"), _instant(params, "to")
    if begin is None and end is None:
        month = read_month(params, now, zone)
        return Window.of(month.first(zone), month.end(zone), now)
    if params.get("month"):
        raise WindowError("Give either month, or from and to.")
    if begin is None:
        raise WindowError("from: a range needs its beginning, for example from=2026-11-01.")
    return Window.of(begin, end or now, now)


def _instant(params: Mapping[str, str], name: str) -> datetime | None:
    try:
        found: datetime | None = InstantField(end=name == "to", required=False).clean(
            params.get(name, "")
        )
    except ValidationError as error:
        raise BadFilter([f"{name}: {text}" for text in error.messages]) from error
    return found


def _refuse_unknown(params: Mapping[str, str], known: set[str] | frozenset[str]) -> None:
    sentences = [
        f"{name}: there is no such parameter. Known: {', '.join(sorted(known))}."
        for name in sorted(set(params) - known)
    ]
    sentences += [
        f"{name}: at most {LONGEST_VALUE} characters, none of them a zero byte."
        for name, value in params.items()
        if "\0" in value or len(value) > LONGEST_VALUE
    ]
    if sentences:
        raise BadFilter(sentences)
