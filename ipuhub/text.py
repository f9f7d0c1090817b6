"""domain: text for people and for CSV.

Times as kubectl shows them (`5m10s`, `3d4h`, `2y`) and as the pages do (`5 min 10 s`). Shares and
future instants as the pages show them. Names in little room. Valid keys of Kubernetes labels.
Whether the creator of an IPUJob is verified, or only claimed by the author of the object.

CSV text that a spreadsheet shows unchanged, in Python and as SQL: a text cell gets one leading
apostrophe where a spreadsheet or pandas would interpret it: a formula (`=1+1`), a number (`00123`,
`1e5`), a date or time (`10-1`, `dec-2026`, `5 pm`), a truth value or a missing value (`true`,
`NA`). So does a cell that begins with an apostrophe: removing one apostrophe restores the original.
`Figure` marks text that is a number.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def human_duration(seconds: float) -> str:
    """A span with two digits of precision, as kubectl prints ages; `<invalid>` in the future."""
    total = int(seconds)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    if total < 3 * _HOUR:
        return _in_minutes(total)
    if total < 8 * _HOUR:
        return _two(total // _HOUR, "h", total % _HOUR // _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    return _in_days(total // _DAY, total % _DAY // _HOUR)


def spell_duration(seconds: float) -> str:
    """A span in words of two units at most: `90 s`, `5 min 10 s`, `1 h 52 min`, `3 d 4 h`."""
    total = max(0, int(seconds))
    if total < 2 * _MINUTE:
        return f"{total} s"
    if total < 10 * _MINUTE:
        return _spelled(total // _MINUTE, "min", total % _MINUTE, "s")
    if total < _HOUR:
        return f"{total // _MINUTE} min"
    if total < _DAY:
        return _spelled(total // _HOUR, "h", total % _HOUR // _MINUTE, "min")
    days = total // _DAY
    return _spelled(days, "d", total % _DAY // _HOUR, "h") if days < 8 else f"{days:,} d"


def spell_share(part: int, whole: int) -> str:
    """Return a part in per cent with one decimal: 0.0 %, < 0.1 %, 12.5 %; empty without a whole.

    Only all of it is 100.0 %, and only nothing 0.0 %.
    """
    if not whole:
        return ""
    if 0 < 2000 * part < whole:
        return "< 0.1 %"
    if 0 < 2000 * (whole - part) <= whole:
        return "> 99.9 %"
    tenths = (2000 * part + whole) // (2 * whole)
    return f"{tenths // 10}.{tenths % 10} %"


def spell_soon(at: dt.datetime, now: dt.datetime) -> str:
    """Return an instant to come: `17:36 UTC`; farther than a day from now with its date."""
    is_soon = abs(at - now) < dt.timedelta(days=1)
    return f"{at.astimezone(dt.UTC):{'%H:%M' if is_soon else '%Y-%m-%d %H:%M'}} UTC"


def age(timestamp: object, now: dt.datetime) -> str:
    """Return the age of an RFC 3339 time; `<unknown>` without a time, `<invalid>` for nonsense."""
    if not timestamp:
        return "<unknown>"
    try:
        then = dt.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return "<invalid>"
    if then.tzinfo is None:
        return "<invalid>"
    return human_duration((now - then).total_seconds())


def _in_minutes(seconds: int) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds // _MINUTE, "m", seconds % _MINUTE, "s")
    return f"{seconds // _MINUTE}m"


def _in_days(days: int, hours: int) -> str:
    if days < 8:
        return _two(days, "d", hours, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(high: int, high_unit: str, low: int, low_unit: str) -> str:
    return f"{high}{high_unit}{low}{low_unit}" if low else f"{high}{high_unit}"


def _spelled(high: int, high_unit: str, low: int, low_unit: str) -> str:
    return f"{high} {high_unit} {low} {low_unit}" if low else f"{high} {high_unit}"


GUARDED: Final = "=+-@\t\r'"
"""First characters of a cell that get an apostrophe before them."""
_BLANK: Final = r"[ \t\u00a0\u202f]*"
_DIGITS: Final = r"[0-9 \t\u00a0\u202f.,:/()$\u0025\u0027\u20ac\u00a3\u00a5_+-]*"
_MONTH: Final = (
    "(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(t|tember)?"
    "|oct(ober)?|nov(ember)?|dec(ember)?)"
)
_WORDS: Final = (
    r"(true|false|n/?a|nan|null|none|inf(inity)?|<na>"
    r"|#(n/a( n/a)?|na|ref!|value!|div/0!|name[?]|num!|null!))"
)
_NUMBER: Final = (
    rf"{_BLANK}[+-]?[(]?[$\u20ac\u00a3\u00a5]?{_BLANK}[+-]?[.,]?[0-9]{_DIGITS}"
    rf"(e[+-]?[0-9]{_DIGITS})?([ap]m?)?"
)
# In the part of the language that Python's `re` and PostgreSQL read alike, without a percent sign,
# which has a meaning to psycopg, or a quote.
_OTHERWISE: Final = "|".join(
    (
        _NUMBER,
        rf"{_BLANK}1[.]#(ind|qnan)",
        rf"{_BLANK}[0-9]{_DIGITS}{_MONTH}{_DIGITS}",
        rf"{_BLANK}{_MONTH}{_DIGITS}[0-9]{_DIGITS}",
        rf"{_BLANK}{_WORDS}{_BLANK}",
    )
)
_READ_OTHERWISE: Final = re.compile(_OTHERWISE, re.IGNORECASE | re.ASCII)
_FIRST_THREE: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    *("tru", "fal", "na", "n/a", "nan", "nul", "non", "inf"),
)
"""Beginnings of texts that begin with a letter but are read as another type."""


class Figure(str):
    """A number that the program itself has printed: a cell shows it unguarded."""

    __slots__ = ()


def safe_cell(text: str) -> str:
    """Return `text` as a cell that neither spreadsheet nor pandas takes for something else."""
    if isinstance(text, Figure) or not text:
        return text
    if text[0] in GUARDED or (_READ_OTHERWISE.fullmatch(text) and not _is_uid(text)):
        return f"'{text}"
    return text


def plain_text(cell: str) -> str:
    """Return the text that `safe_cell` made `cell` of."""
    return cell[1:] if cell[:1] == "'" else cell


def safe_cell_sql(expression: str) -> str:
    """Return SQL that does to a text expression what `safe_cell` does, for COPY ... (FORMAT csv).

    An empty text becomes NULL, which COPY writes as an empty cell without quotes. A pattern costs
    as much as the rest of a cell: how a text begins settles the usual name, and a UID is none.
    """
    guarded = f"'''' || {expression}"
    begins = ", ".join(f"'{three}'" for three in _FIRST_THREE)
    pattern = f"{expression} COLLATE \"C\" ~ '(?i)^({_OTHERWISE})$'"
    return (
        f"CASE WHEN {expression} COLLATE \"C\" < 'A' THEN CASE WHEN {_is_guarded(expression)}"
        f" OR {expression} COLLATE \"C\" NOT LIKE '________-____-____-____-____________'"
        f" AND {pattern} THEN {guarded} ELSE NULLIF({expression}, '') END"
        f' WHEN (lower(left({expression}, 3) COLLATE "C") COLLATE "C" IN ({begins})'
        f" OR {expression} COLLATE \"C\" > '~') AND {pattern}"
        f" THEN {guarded} ELSE {expression} END"
    )


def inert_cell_sql(expression: str) -> str:
    """Return SQL for a cell that no spreadsheet runs, and that is otherwise as PrimeHub writes it.

    Guarded characters all sort before `A`: one comparison settles the usual name.
    """
    return (
        f"CASE WHEN {expression} COLLATE \"C\" < 'A' AND {_is_guarded(expression)}"
        f" THEN '''' || {expression} ELSE NULLIF({expression}, '') END"
    )


def _is_uid(text: str) -> bool:
    return len(text) == 36 and {text[place] for place in (8, 13, 18, 23)} == {"-"}


def _is_guarded(expression: str) -> str:
    return f"left({expression}, 1) IN ('=', '+', '-', '@', E'\\t', E'\\r', '''')"


_PREFIX: Final = "[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_NAME: Final = "[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_KEY: Final = re.compile(f"(?:{_PREFIX}/)?{_NAME}")
_LONGEST_PREFIX, _LONGEST_NAME = 253, 63


def is_label_key(text: str) -> bool:
    """Return whether `text` is a key: `name`, or `prefix/name`."""
    prefix, _, name = text.rpartition("/")
    fits = len(prefix) <= _LONGEST_PREFIX and len(name) <= _LONGEST_NAME
    return fits and _KEY.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class AuthorTrust:
    """The condition under which the webhook has set `ipuhub.io/created-by`: a webhook is installed
    (`is_on`), and the namespace is not in `unasked`, for which the API server does not call it."""

    is_on: bool = False
    unasked: frozenset[str] = frozenset()

    def covers(self, user: str, namespace: str) -> bool:
        """Return whether `user` of a job in `namespace` is verified."""
        return self.is_on and bool(user) and namespace not in self.unasked


_NAME_PARTS: Final = re.compile(r"[-._:/@]|[^-._:/@]+")


def short_names(names: Iterable[str], *, keeps_begin: bool = False) -> dict[str, str]:
    """Return the names without the parts with which all of them begin and end, for little room.

    Parts end at punctuation: of `pod0-ag1` and `pod0-ag10` are left `ag1` and `ag10`. A name alone
    stays. With `keeps_begin` only the end is left out, as of the addresses of hosts in one domain.
    """
    parts = {name: _NAME_PARTS.findall(name) for name in names}
    rows = list(parts.values())
    if len(rows) < 2:
        return {name: name for name in parts}
    most = min(map(len, rows)) - 1  # something is left of each
    begin = 0 if keeps_begin else _count_alike(rows, most)
    end = _count_alike([row[::-1] for row in rows], most - begin)
    return {name: "".join(row[begin : len(row) - end]) for name, row in parts.items()}


def _count_alike(rows: Sequence[Sequence[str]], most: int) -> int:
    """Return with how many equal parts all rows begin, `most` at most."""
    alike = (len({row[at] for row in rows}) == 1 for at in range(most))
    return next((at for at, is_alike in enumerate(alike) if not is_alike), max(most, 0))


def spell_ipus(number: int) -> str:
    """Return `1 IPU`, or `2 IPUs`."""
    return "1 IPU" if number == 1 else f"{number} IPUs"
