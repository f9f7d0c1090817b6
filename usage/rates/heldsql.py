"""domain: what a segment's prices make of amounts held, as SQL: exact, for reports and for sums.

Names come in as parameters (`accelerator_0`, ...), prices as digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from usage.rates.tariff import Segment

_EXACT: Final = Context(prec=100)
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Amounts:
    """SQL of amounts, or of amounts x seconds: millicores, bytes, micro-IPUs and accelerators."""

    cpu: str
    memory: str
    ipu: str
    gpu: str


def accelerator_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of how many of each named accelerator are held: `acc_0`, ..."""
    return [f"acc_{n}" for n, _ in enumerate(names)]


def accelerator_counts(names: Sequence[str]) -> list[str]:
    """Return SQL of these columns, of a pod's row."""
    return [
        f"COALESCE((accelerators ->> %(accelerator_{n})s)::numeric, 0) AS {column}"
        for n, column in enumerate(accelerator_columns(names))
    ]


def accelerator_parameters(names: Sequence[str]) -> dict[str, str]:
    """Return what the counts refer to."""
    return {f"accelerator_{n}": name for n, name in enumerate(names)}


def price_of(
    segment: Segment,
    amounts: Amounts,
    names: Sequence[str],
    scale: int = 1,
    columns: Sequence[str] = (),
) -> str:
    """Return SQL of price x amounts x `scale`, as `numeric`.

    Accelerators in `names` have `columns`, by default those of `accelerator_columns`. One with a
    price by name costs that instead of the price of any.
    """
    named = segment.named("accelerator")
    listed = zip(columns or accelerator_columns(names), names, strict=True)
    own = {column: named[name] for column, name in listed if name in named}
    terms = [
        term(amounts.cpu, segment.of("cpu"), scale, 1000),
        term(amounts.memory, segment.of("memory"), scale, _GIB),
        term(amounts.ipu, segment.of("ipu"), scale, 10**6),
        *(term(column, price, scale) for column, price in own.items()),
        term(f"({' - '.join([amounts.gpu, *own])})", segment.of("gpu"), scale),
    ]
    return " + ".join(each for each in terms if each) or "0::numeric"


def term(amount: str, price: Decimal, scale: int = 1, unit: int = 1) -> str:
    """Return SQL of amount x price x scale / unit; empty where it costs nothing."""
    if not price:
        return ""
    factor = _EXACT.divide(_EXACT.multiply(price, scale), unit).normalize(_EXACT)
    return f"{amount} * {factor:f}::numeric"
