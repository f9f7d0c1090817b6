"""The cells of a list as HTML."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from dashboard.fleetmap import IPU_STATES
from ipuhub.templatetags.cells import table_rows
from ipuhub.web.cells import COLOURS, Cell
from usage.models import ReportState

ROOT = Path(__file__).resolve().parents[3]
NOW = dt.datetime(2026, 11, 24, 9, 5, tzinfo=dt.UTC)
AT = dt.datetime(2026, 11, 24, 9, 3, 7, 250_000, tzinfo=dt.UTC)
THERE = AT.astimezone(ZoneInfo("Asia/Kolkata"))
ISO = "2026-11-24T09:03:07.250000+00:00"
NONE = '<span class="text-secondary">–</span>'


@pytest.mark.parametrize(
    ("cell", "want"),
    [
        (Cell("a", "text", "User"), '<td data-label="User" class="whole"><span>a</span></td>'),
        (
            Cell("a" * 21, "text", "User"),
            f'<td data-label="User"><span class="long" title="{"a" * 21}">{"a" * 21}</span></td>',
        ),
        (
            Cell("<i>", "text", 'A"b', href="/?a=1&b=2"),
            (
                '<td data-label="A&quot;b" class="whole"><a href="/?a=1&amp;b=2" class="fw-medium">'
                "<span>&lt;i&gt;</span></a></td>"
            ),
        ),
        (
            Cell(4096, "number", "IPUs"),
            '<td data-label="IPUs" class="text-sm-end text-nowrap"><span>4096</span></td>',
        ),
        (
            Cell(Decimal("0.50"), "number", "Cost"),
            '<td data-label="Cost" class="text-sm-end text-nowrap"><span>0.50</span></td>',
        ),
        (
            Cell(None, "number", "Cost"),
            f'<td data-label="Cost" class="is-empty text-sm-end">{NONE}</td>',
        ),
        (Cell("", "age", "Ended"), f'<td data-label="Ended" class="is-empty">{NONE}</td>'),
        (
            Cell(False, "text", "Real"),
            '<td data-label="Real" class="whole"><span>False</span></td>',
        ),
        (
            Cell("a & b", "brief", "Message"),
            (
                '<td data-label="Message" class="text-secondary message brief">'
                '<span title="a &amp; b">a &amp; b</span></td>'
            ),
        ),
        (
            Cell("no call since 2026-11-24T09:03:07.250Z", "brief", "Note"),
            (
                '<td data-label="Note" class="text-secondary message brief">'
                '<span title="no call since 2026-11-24 09:03:07 UTC">no call since '
                "2026-11-24 09:03:07 UTC</span></td>"
            ),
        ),
        (
            Cell("Failed", "badge", "Status", colour="red"),
            (
                '<td data-label="Status"><span class="badge bg-red-lt" data-state="Failed">Failed'
                "</span></td>"
            ),
        ),
        (Cell("<x>", "code", "Key"), '<td data-label="Key"><code>&lt;x&gt;</code></td>'),
        (
            Cell("<x>", "log", "Log"),
            (
                '<td data-label="Log" class="log"><pre tabindex="0" aria-label="Log">'
                "&lt;x&gt;</pre></td>"
            ),
        ),
        (
            Cell(THERE, "age", "Age"),
            (
                f'<td data-label="Age" class="text-nowrap"><time datetime="{ISO}" data-age'
                ' title="2026-11-24 09:03:07 UTC">112 s</time></td>'
            ),
        ),
        (
            Cell(THERE - dt.timedelta(hours=9), "ago", "Ended"),
            (
                '<td data-label="Ended" class="text-nowrap">'
                '<time datetime="2026-11-24T00:03:07.250000+00:00" data-age="brief"'
                ' title="2026-11-24 00:03:07 UTC">9 h</time> ago</td>'
            ),
        ),
        (
            Cell(AT, "duration", "Ran"),
            (
                f'<td data-label="Ran" class="text-nowrap"><time datetime="{ISO}" data-age'
                ' title="since 2026-11-24 09:03:07 UTC">112 s</time></td>'
            ),
        ),
        (
            Cell(112, "duration", "Ran"),
            '<td data-label="Ran" class="text-nowrap"><span>112 s</span></td>',
        ),
        (
            Cell(THERE, "second", "At"),
            (
                f'<td data-label="At" class="text-nowrap"><time datetime="{ISO}"'
                ' title="2026-11-24 09:03:07 UTC">2026-11-24 09:03:07</time></td>'
            ),
        ),
        (
            Cell(THERE, "time", "At"),
            (
                f'<td data-label="At" class="text-nowrap"><time datetime="{ISO}">2026-11-24 09:03'
                "</time></td>"
            ),
        ),
    ],
    ids=lambda value: f"{value.kind} {value.value}"[:30] if isinstance(value, Cell) else "",
)
def test_a_cell_is_drawn_by_its_kind_and_nothing_in_it_is_markup(cell: Cell, want: str) -> None:
    assert table_rows([[cell]], NOW) == f"<tr>{want}</tr>"


@pytest.mark.parametrize("state", COLOURS)
def test_each_state_has_a_mark_beside_its_colour(state: str) -> None:
    assert marked_states().count(state) == 1


def marked_states() -> list[str]:
    """Return the states to which the style sheet gives a mark."""
    css = (ROOT / "ipuhub/static/ipuhub/ipuhub.css").read_text()
    rules = re.findall(r"([^{}]*)\{ --mark: url\(\"data:image/svg", css)
    return [name for rule in rules for name in re.findall(r'\[data-state="([\w-]+)"\]', rule)]


def test_each_coloured_badge_of_a_template_has_the_mark_of_a_state() -> None:
    bare, named = [], set()
    for path in (ROOT / "templates").rglob("*.html"):
        for badge in re.findall(r'<span class="badge bg-[^<>]*?>', path.read_text()):
            quiet = re.match(r'<span class="badge bg-(?:secondary|blue)-lt', badge)
            if "data-state=" in badge:
                named |= set(re.findall(r'data-state="([\w-]+)"', badge))
            elif not quiet:
                bare.append(f"{path.name}: {badge}")
    assert bare == []
    assert {"expired", "paused", "stale"} <= named
    written = {*ReportState.values, "in-force", "to-come", "over", "withdrawn", *IPU_STATES}
    machines = {"up", "cordoned", "faulty", "lost", "unknown"}
    assert named | written | machines <= set(marked_states())
