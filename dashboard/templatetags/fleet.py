"""glue: renders the squares of the fleet map in one call: a template takes 0.1 ms for each."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

from django import template
from django.urls import NoReverseMatch, reverse
from django.utils.safestring import mark_safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.utils.safestring import SafeString

    from dashboard.fleetfits import Fragments, Place
    from dashboard.fleetpaint import Machine, Square

register = template.Library()
_HEIGHT = 14
_AROUND = 0.7  # of the outline of a partition; squares are two apart
_MOST_BLOCKS = 64
_CELL = 3  # pixels of an IPU in the glyph of a block, and their gap
_MOST_CELLS = 8  # of a side


@register.simple_tag
def squares(machine: Machine) -> SafeString:
    """Return the SVG elements of a machine's squares; each names its holder, and leads to it."""
    drawn = "".join(part for square in machine.squares for part in _draw(square, machine))
    drawn += "".join(
        f'<rect class="joint" x="{each.x - _AROUND:g}" y="-{_AROUND:g}" rx="2" '
        f'width="{each.width + 2 * _AROUND:g}" height="{_HEIGHT + 2 * _AROUND:g}"/>'
        for each in machine.joints
    )
    return mark_safe(drawn)  # noqa: S308  # every text in it is escaped


@register.simple_tag
def machine_name(machine: Machine, page: str) -> SafeString:
    """Return the name of a machine as a link to its page; by Tab it is reached on the Fleet page
    alone, as the overview would have too many stops."""
    text = name = escape(machine.name)
    title = ""
    if machine.short not in {"", machine.name}:
        title = f' aria-label="{name}" title="{name}"'
        brief = f'<span class="brief-name">{escape(machine.short)}</span>'
        text = f'<span class="full-name">{name}</span>{brief}'
    if not machine.key:
        return mark_safe(f'<span class="machine-name">{name}</span>')  # noqa: S308
    stop = "" if page == "fleet" else ' tabindex="-1"'
    link = escape(machine_address(*machine.key))
    drawn = f'<a class="machine-name" href="{link}"{title}{stop}>{text}</a>'
    return mark_safe(drawn)  # noqa: S308  # every text in it is escaped


def _draw(square: Square, machine: Machine) -> Iterator[str]:
    place = f'x="{square.x}" width="{square.width}" height="{_HEIGHT}" rx="1.5"'
    link = (
        _link(square.job_uid)
        if square.job_uid
        else escape(machine_address(*square.key))
        if square.key
        else ""
    )
    # The title is the link's own: then it is its name, too.
    yield f'<a href="{link}" tabindex="-1">' if link else "<g>"
    yield f"<title>{escape(machine.name)}: {escape(square.label)}</title>"
    yield f'<rect class="ipu {square.css}" {place}/>'
    for decal in square.decals:
        yield f'<rect class="over" fill="url(#{decal})" {place}/>'
    yield "</a>" if link else "</g>"


@lru_cache(maxsize=4096)
def _link(uid: str) -> str:
    return escape(reverse("jobs:detail", args=[uid]))


@lru_cache(maxsize=4096)
def machine_address(controller: str, agent: str) -> str:
    """Return the address of a machine's page, not escaped yet; empty: it can have none."""
    try:
        return reverse("machine", args=[controller, agent])
    except NoReverseMatch:  # a name that no address could have
        return ""


@register.simple_tag
def machine_links(place: Place) -> SafeString:
    """Return the machines of a place as links: one, two, or the first and the last."""
    names = place.machines if len(place.machines) <= 2 else (place.machines[0], place.machines[-1])
    links = [_machine_link(place.controller, name) for name in names]
    joined = (" to " if len(place.machines) > 2 else ", ").join(links)
    return mark_safe(joined)  # noqa: S308  # every text in it is escaped


@register.simple_tag
def machine_list(names: Iterable[tuple[str, str]]) -> SafeString:
    """Return the items of a list of machines, each a link."""
    items = "".join(f"<li>{_machine_link(controller, name)}</li>" for controller, name in names)
    return mark_safe(items)  # noqa: S308  # every text in it is escaped


def _machine_link(controller: str, name: str) -> str:
    address = machine_address(controller, name)
    return f'<a href="{escape(address)}">{escape(name)}</a>' if address else escape(name)


@register.simple_tag
def block_glyph(ipus: int) -> SafeString:
    """Return a picture of a block of so many IPUs, a cell for each: its area is its size."""
    across = _CELL * min(2 ** (ipus.bit_length() // 2), _MOST_CELLS)
    down = _CELL * min(2 ** ((ipus.bit_length() - 1) // 2), _MOST_CELLS)
    side = _CELL * _MOST_CELLS
    place = f'transform="translate({side - across} {(side - down) / 2:g})"'
    drawn = (
        f'<svg class="glyph" width="{side}" height="{side}" aria-hidden="true" focusable="false">'
        f'<rect width="{across}" height="{down}" fill="url(#cells)" {place}/></svg>'
    )
    return mark_safe(drawn)  # noqa: S308  # numbers alone


@register.simple_tag
def free_blocks(found: Fragments) -> SafeString:
    """Return the SVG elements of the free blocks, each as wide as its share; those that are smaller
    than the largest block are paler."""
    drawn, begin = [], 0
    for size, count in found.blocks:
        css = "block is-largest" if size == found.largest else "block"
        parts = min(count, _MOST_BLOCKS)  # of many the first blocks: they take no more room
        for number in range(parts):
            part = size * count / parts
            x, width = 100 * (begin + number * part) / found.free, 100 * part / found.free
            place = f'x="{x:.2f}%" width="{width:.2f}%"'
            drawn.append(f'<rect class="{css}" {place} height="{_HEIGHT}"/>')
        begin += size * count
    return mark_safe("".join(drawn))  # noqa: S308  # numbers alone
