"""domain: Kubernetes resource quantities ("500m", "256Gi") as exact integers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

_FORM: Final = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?")
_BINARY: Final = {f"{letter}i": Decimal(1024) ** n for n, letter in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {letter: Decimal(1000) ** n for n, letter in enumerate("kMGTPE", 1)}
_SMALL: Final = {"m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")}
_FACTORS: Final = _BINARY | _DECIMAL | _SMALL


@lru_cache(maxsize=4096)
def parse_thousandths(text: str) -> int:
    """Amount in thousandths, rounded up: "500m" is 500, "2" is 2000. Raises ValueError."""
    match = _FORM.fullmatch(text.strip())
    if match is None or match[1].count(".") > 1 or not any(c.isdigit() for c in match[1]):
        raise ValueError(f"{text!r} is no resource quantity")
    number, exponent, suffix = match.groups()
    amount = Decimal(number + (exponent or "")) * _FACTORS.get(suffix or "", Decimal(1))
    return int((amount * 1000).to_integral_value(ROUND_CEILING))
