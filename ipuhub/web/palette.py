"""domain: the colours of names, the same on maps and in charts.

A paint is a class of ipuhub.css with patterns of templates/fleet/_decals.html over it. The patterns
serve readers who cannot distinguish two colours, and prints in black and white.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Paint = tuple[str, tuple[str, ...]]
"""A CSS class, and the patterns over it."""
COLOURS: Final = 7  # .fill-0 to .fill-6 in ipuhub.css; distinct for colour-blind people
PATTERNS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("decal-1",),
    ("decal-2",),
    ("decal-3",),
    ("decal-2", "decal-3"),
)
"""For names that share a colour: plain, dots, lines across, lines down, a grid."""
OTHER: Final[Paint] = ("is-other", ())
UNKNOWN: Final[Paint] = ("is-other", ("decal-1",))
"""For a name that is not known yet: grey like `OTHER`, with a pattern to tell it apart."""


def colour_number(name: str) -> int:
    """The colour that belongs to a name, on every page and at every time."""
    return crc32(name.encode()) % COLOURS


def paints_of(names: Iterable[str], unknown: str = "") -> Mapping[str, Paint]:
    """Return how each name is drawn. Its colour belongs to it, whatever else is on the page; names
    that share one differ by a decal, the first in alphabetical order has none.

    `unknown`: the words that stand for a name that is not known, which have no colour.
    """
    found: dict[str, Paint] = {unknown: UNKNOWN} if unknown else {}
    taken = Counter[int]()
    for name in sorted({*names} - {"", unknown}):
        colour = colour_number(name)
        found[name] = f"fill-{colour}", PATTERNS[taken[colour] % len(PATTERNS)]
        taken[colour] += 1
    return found
