"""Themes and widths of a page, and those that axe checks."""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

from tests.fakes.longform import IS_LONG, one_in_turn
from tests.integration.web.livepages import ALL_RULES, RULES_OF_COLOURS

WIDTHS: Final = (1280, 768, 390)
SCHEMES: Final = ("light", "dark")


class Look(NamedTuple):
    """A width in CSS pixels, and a colour scheme with the rules that it may break."""

    width: int
    scheme: str
    rules: str


def looks_of(turn: int, *, is_long: bool = IS_LONG) -> list[Look]:
    """Return the looks in which the page with this number is judged.

    Each page in both schemes, the second by the rules of colours: a scheme is nothing else. In the
    short form in one width, the next page in the next width, and each width begins in each scheme.
    """
    begun = turn // len(WIDTHS)
    schemes = (SCHEMES[begun % 2], SCHEMES[(begun + 1) % 2])
    widths = one_in_turn(WIDTHS, turn, is_long=is_long)
    rules = (ALL_RULES, RULES_OF_COLOURS)
    return [
        Look(width, scheme, rule)
        for width, (scheme, rule) in product(widths, zip(schemes, rules, strict=True))
    ]
