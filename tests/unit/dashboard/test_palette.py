"""The colours of fleet map and heat map, as people with and without all cones see them."""

from __future__ import annotations

import math
import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from ipuhub.web.cells import COLOURS as CHIPS
from ipuhub.web.palette import COLOURS, PATTERNS, UNKNOWN
from usage.utilization.pages import BANDS
from usage.utilization.weekhours import LEVELS

ROOT = Path(__file__).resolve().parents[3]
STATIC = ROOT / "ipuhub/static/ipuhub"
DECALS = ROOT / "templates/fleet/_decals.html"
CSS = STATIC / "ipuhub.css"
Colour = tuple[float, float, float]
# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
SIGHT: dict[str, tuple[Colour, Colour, Colour]] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def palette() -> list[Colour]:
    """The fills of ipuhub.css as linear RGB."""
    found = dict(re.findall(r"\.fill-(\d)[^{]*\{ fill: #([0-9a-f]{6})", CSS.read_text()))
    assert sorted(found) == [str(number) for number in range(COLOURS)]
    return [linear(found[str(number)]) for number in range(COLOURS)]


def linear(text: str) -> Colour:
    parts = [int(text[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return red, green, blue


def seen(colour: Colour, sight: tuple[Colour, Colour, Colour]) -> Colour:
    """The colour in OKLab (Ottosson 2020) after the cones that are there."""
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, colour, strict=True)))) for row in sight
    )
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    mid = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * mid - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * mid + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * mid - 0.8086757660 * short,
    )


def closest(colours: dict[str, Colour], sight: str) -> tuple[float, str, str]:
    """Return the distance of the two colours that are closest, and their names."""
    after = {name: seen(colour, SIGHT[sight]) for name, colour in colours.items()}
    return min(
        (
            sum((a - b) ** 2 for a, b in zip(after[one], after[other], strict=True)) ** 0.5,
            one,
            other,
        )
        for one, other in combinations(after, 2)
    )


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_colours_are_told_apart(sight: str) -> None:
    fills = {f"fill-{number}": colour for number, colour in enumerate(palette())}
    assert closest(fills, sight) > (0.07,)
    for bands in bands_of_pages():
        assert closest(bands, sight) > (0.07,)


SURFACES = ("ffffff", "262626")
"""Of a card on a light page, and on a dark one."""


def bands_of_pages() -> list[dict[str, Colour]]:
    """The bands of utilization on a light page and on a dark one."""
    css = (STATIC / "usage.css").read_text()
    rule = r"\.(band-\w+) \{ fill: #([0-9a-f]{6})"
    light = re.findall(f"^{rule}", css, re.MULTILINE)
    dark = re.findall(rf'^\[data-bs-theme="dark"\] {rule}', css, re.MULTILINE)
    assert sorted(name for name, _ in light) == sorted(css_class for *_, css_class in BANDS)
    pages = (dict(light), dict(light) | dict(dark))
    return [{name: linear(text) for name, text in page.items()} for page in pages]


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_free_recedes_and_what_is_held_in_vain_stands_out(page: int, sight: str) -> None:
    """Free is closest to the page; held idle has the colour of the map, and is far from it."""
    bands = bands_of_pages()[page]
    surface = linear(SURFACES[page])
    far = {
        name: closest({"page": surface, name: colour}, sight)[0] for name, colour in bands.items()
    }
    assert min(far, key=far.__getitem__) == "band-free"
    assert far["band-idle"] > 3 * far["band-free"]
    assert bands["band-idle"] == colours_of(STATES)["idle"]


def colours_of(pattern: str) -> dict[str, Colour]:
    """Return the colours of the rules of ipuhub.css that match, by the first group."""
    return {name: linear(text) for name, text in re.findall(pattern, CSS.read_text())}


def test_others_and_waiting_time_are_grey_and_no_name_is() -> None:
    """Parts without a name have no colour of their own."""
    greys = colours_of(r"\.(is-other|bar-waiting)\b[^{]*\{ (?:fill|--bar): #([0-9a-f]{6})")
    assert sorted(greys) == ["bar-waiting", "is-other"]
    assert max(colourfulness(each) for each in greys.values()) < 0.025
    assert min(colourfulness(each) for each in palette()) > 0.08


def colourfulness(colour: Colour) -> float:
    """Return the chroma of OKLab."""
    _, green_red, blue_yellow = seen(colour, SIGHT["all cones"])
    return math.hypot(green_red, blue_yellow)


STATES = r"\.is-(held|idle|removing|faulty)\b[^{]*\{ fill: #([0-9a-f]{6})"
BARS = r"\.bar-(\w+), \.key-\w+ \{ --bar: #([0-9a-f]{6})"
SHARES = r"\.ipus-(used|cordoned|faulty) \{ fill: #([0-9a-f]{6})"


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(
    ("pattern", "count"), [(STATES, 4), (BARS, 7), (SHARES, 3)], ids=["states", "bars", "shares"]
)
def test_states_are_told_apart_on_map_timeline_and_bars(
    pattern: str, count: int, sight: str
) -> None:
    found = colours_of(pattern)
    assert len(found) == count
    assert closest(found, sight) > (0.07,)


SHOWN_TOGETHER = (
    {"Running", "Completed", "Failed", "Pending", "Restarting", "Suspended", "Stopped", "Deleted"},
    {"active", "error", "creating", "releasing", "released"},
    {"accepted", "refused", "unknown", "sent"},
)


@pytest.mark.parametrize("states", SHOWN_TOGETHER)
def test_a_badge_is_known_by_its_mark_without_its_colour(states: set[str]) -> None:
    rules = re.findall(r"([^{}]+)\{ --mark: url\((\"[^\"]+\")\); \}", CSS.read_text())
    marks = {
        state: mark
        for selectors, mark in rules
        for state in re.findall(r'\[data-state="([\w-]+)"\]', selectors)
    }
    assert set(CHIPS) <= set(marks)
    assert len({marks[state] for state in states}) == len(states)


def test_each_pattern_is_drawn_and_looks_different() -> None:
    drawn = dict(re.findall(r'<pattern id="([^"]+)"[^>]*>(.*?)</pattern>', DECALS.read_text()))
    assert len({*PATTERNS}) == len(PATTERNS)
    used = {name for names in (*PATTERNS, UNKNOWN[1]) for name in names}
    assert used <= set(drawn)
    assert len({drawn[name] for name in used}) == len(used)


def ramps() -> list[list[str]]:
    """The levels of the heat map on a light page, which is paper's, too, and on a dark page."""
    found = re.findall(r"--heat-(\d): #([0-9a-f]{6})", (STATIC / "usage.css").read_text())
    assert [number for number, _ in found] == [str(number) for number in range(LEVELS)] * 2
    colours = [colour for _, colour in found]
    return [colours[:LEVELS], colours[LEVELS:]]


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("page", "sign"), [(0, -1), (1, 1)], ids=["light", "dark"])
def test_more_is_further_from_the_page_for_every_eye_and_in_grey(
    page: int, sign: int, sight: str
) -> None:
    light = [seen(linear(colour), SIGHT[sight])[0] for colour in ramps()[page]]
    steps = [sign * (after - before) for before, after in pairwise(light)]
    assert min(steps) > 0.07, f"lightness {light} for {sight}"
