"""domain: Kubernetes quantities ("500m", "256Gi", "1e3") as exact integers, rounded up."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache
from typing import Final

LARGEST: Final = 2**63 - 1
"""Largest amount: Kubernetes and Postgres count in 64 bits."""

_LONGEST: Final = 64
_FORM: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?"
)
_BINARY: Final = {f"{letter}i": Decimal(1024) ** n for n, letter in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {letter: Decimal(1000) ** n for n, letter in enumerate("kMGTPE", 1)}
_SMALL: Final = {"m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")}
_FACTORS: Final = _BINARY | _DECIMAL | _SMALL | {"": Decimal(1)}
_EXACT: Final = Context(prec=200)


class InvalidQuantity(ValueError):  # noqa: N818  # the API's own way to say it
    """No quantity, a negative quantity, or a quantity beyond 64 bits; the text says which."""


def units(text: str | float) -> int:
    """Whole units, rounded up: "1Ki" is 1024. Raises InvalidQuantity."""
    return _parse(str(text), 1)


def thousandths(text: str | float) -> int:
    """Thousandths of a unit (millicores): "500m" is 500, "2" is 2000. Raises InvalidQuantity."""
    return _parse(str(text), 1000)


@lru_cache(maxsize=4096)
def _parse(text: str, scale: int) -> int:
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidQuantity(f"{text[:_LONGEST]!r} is not a quantity (examples: 500m, 2, 16Gi)")
    number, exponent, suffix = match.groups()
    amount = _EXACT.multiply(Decimal(number), _FACTORS[suffix or ""])
    amount = _EXACT.scaleb(_EXACT.multiply(amount, Decimal(scale)), int(exponent or 0))
    if amount < 0:
        raise InvalidQuantity(f"{text!r} is negative")
    if amount > LARGEST:
        raise InvalidQuantity(f"{text!r} is too large (more than 64 bits)")
    return int(amount.to_integral_value(ROUND_CEILING))
