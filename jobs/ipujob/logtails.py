"""domain: the last lines of a log, safe to store in a job's status and to show.

Programs write colours, progress bars and bytes that are not text, and a status has little room.
"""

from __future__ import annotations

import re

LONGEST_TAIL = 2048  # bytes
ALL_TAILS = 65536  # bytes in one status: the API server stores no object past 1.5 MB
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# Control characters but tab and newline, halves of surrogate pairs, and what turns text around.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean_tail(text: str, longest: int = LONGEST_TAIL) -> str:
    """The last lines of `text` in at most `longest` bytes, without colours and control characters.

    Of a line that a program wrote again and again (a progress bar) the last state stays.
    """
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    cleaned = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return _last(_UNSAFE.sub("", cleaned).strip("\n"), longest)


def longest_tail(instances: int) -> int:
    """Return how many bytes of log each instance may keep of an attempt (it keeps two attempts)."""
    return min(LONGEST_TAIL, ALL_TAILS // max(2 * instances, 1))


def _last(text: str, longest: int) -> str:
    raw = text.encode()
    if len(raw) <= longest:
        return text
    tail = raw[len(raw) - longest :].decode(errors="ignore")
    first, newline, rest = tail.partition("\n")
    return rest if newline and rest else first
