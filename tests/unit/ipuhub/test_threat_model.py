"""THREAT_MODEL.md names tests; each must be there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"`(?P<file>[a-z0-9_/]+/test_[a-z0-9_]+\.py)?(?:::(?P<test>test_\w+))?`")


def test_every_named_test_exists() -> None:
    text, found = "", 0
    for line in (ROOT / "THREAT_MODEL.md").read_text().splitlines():
        for match in NAMED.finditer(line):
            if match["file"]:
                paths = [ROOT / "tests/integration" / match["file"], ROOT / "tests" / match["file"]]
                existing = [path for path in paths if path.exists()]
                assert existing, match["file"]
                text = existing[0].read_text()
            if match["test"]:
                assert f"def {match['test']}(" in text, match["test"]
                found += 1
    assert found > 30
