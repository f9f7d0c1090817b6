"""domain: the colour of each state, for every badge and chart of the pages."""

from __future__ import annotations

COLOURS = {
    "Running": "green",
    "Completed": "blue",
    "Succeeded": "blue",
    "Failed": "red",
    "Pending": "yellow",
    "Restarting": "orange",
    "Suspended": "secondary",
    "Deleted": "secondary",
    "active": "green",
    "error": "red",
    "creating": "yellow",
    "reserving": "yellow",
    "waiting": "yellow",
    "releasing": "orange",
    "released": "secondary",
}


def colour_of(state: str) -> str:
    """Return the Tabler colour of a state; grey for an unknown one."""
    return COLOURS.get(state, "secondary")
