"""Pages that name tests as their evidence: each test must be there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(?P<file>[a-z0-9_/]+/[a-z0-9_]+\.py)?(?:::(?P<test>test_\w+))?`")
DEFINED = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
PAGES = {
    "THREAT_MODEL.md": 30,
    "docs/developer/chart.md": 35,
    "docs/developer/operator-rules.md": 150,
    "docs/developer/partition-rules.md": 100,
    "docs/developer/usage-rules.md": 150,
}


@cache
def functions_of(path: Path) -> frozenset[str]:
    return frozenset(DEFINED.findall(path.read_text(encoding="utf-8")))


def lost(text: str) -> tuple[list[str], int]:
    """Return the tests that `text` names and that do not exist, and how many it names. A test
    without a file is in the file named before it."""
    missing, count, path = [], 0, TESTS / "none.py"
    for match in NAMED.finditer(text):
        if match["file"]:
            places = (TESTS / "integration" / match["file"], TESTS / match["file"])
            path = next((place for place in places if place.exists()), TESTS / "none.py")
        if match["test"]:
            count += 1
        is_there = path.exists() and (not match["test"] or match["test"] in functions_of(path))
        if not is_there and (match["file"] or match["test"]):
            missing.append(match[0])
    return missing, count


@pytest.mark.parametrize("page", PAGES)
def test_every_named_test_exists(page: str) -> None:
    missing, count = lost((TESTS.parent / page).read_text(encoding="utf-8"))
    assert missing == []
    assert count > PAGES[page]


def test_what_is_not_there_is_found() -> None:
    here = "unit/ipuhub/test_named_tests.py"
    good = f"`{here}::test_every_named_test_exists`, `::test_what_is_not_there_is_found`"
    assert lost(good) == ([], 2)
    assert lost(f"`{here}::test_gone`, `unit/gone/test_x.py`, `::test_y`") == (
        [f"`{here}::test_gone`", "`unit/gone/test_x.py`", "`::test_y`"],
        2,
    )
