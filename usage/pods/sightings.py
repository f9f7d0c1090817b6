"""domain: when a pod was last known to be there, as SQL over a row `known` of its lifetime.

Three things are sightings: the last change that was written, the monitor's last look, and the
position of the watch, since every change before it is written. The last one proves nothing for a
pod outside the namespace that was watched, nor for one whose later change Postgres or the decoder
refused: its end may be among what was refused.
"""

from __future__ import annotations

from typing import Final

REFUSALS: Final = ("refused", "unreadable")
"""Faults for which a change of a pod was not written."""


def last_seen(position: str, watched: str) -> str:
    """The expression; `position` and `watched` (empty: all namespaces) are SQL of the watch."""
    codes = ", ".join(f"'{code}'" for code in REFUSALS)
    return f"""GREATEST(known.updated_at, known.seen_at,
    CASE WHEN {watched} IN ('', known.namespace) AND NOT EXISTS (
        SELECT FROM ipuhub_recordfault AS fault
        WHERE fault.watch = 'pods' AND fault.uid = known.uid AND fault.code IN ({codes})
          AND fault.last_at >= known.updated_at)
    THEN {position} END)"""  # text of this program
