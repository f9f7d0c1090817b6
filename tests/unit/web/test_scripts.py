"""Scripts and styles: vendored files are what their README says, and own files stay small."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[3] / "ipuhub" / "static" / "ipuhub"
VENDORED = sorted(STATIC.glob("vendor/*/*.min.*"))


@pytest.mark.parametrize("file", VENDORED, ids=lambda file: file.name)
def test_a_vendored_file_has_its_hash_and_licence(file: Path) -> None:
    text = (file.parent / "README.md").read_text(encoding="utf-8")
    assert f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}" in text
    assert re.search(r"MIT licence|Apache License 2\.0|BSD licence", text)
    assert file.name in text


def test_idiomorph_needs_no_eval() -> None:
    """The content security policy allows none; its htmx extension would use it."""
    text = (STATIC / "vendor/idiomorph/idiomorph.min.js").read_text(encoding="utf-8")
    assert not re.search(r"\b(eval|Function)\(", text)


def test_own_scripts_stay_below_30_kb() -> None:
    sizes = [len(gzip.compress(file.read_bytes())) for file in STATIC.glob("*.js")]
    assert len(sizes) > 5
    assert sum(sizes) <= 30_000
