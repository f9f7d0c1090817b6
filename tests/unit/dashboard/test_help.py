"""The page of help has the words of docs/glossary.md, in the same words."""

from __future__ import annotations

import re
from pathlib import Path

from dashboard.help import WORDS

GLOSSARY = Path(__file__).resolve().parents[3] / "docs" / "glossary.md"


def test_words_mean_on_the_page_what_they_mean_in_the_docs() -> None:
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", GLOSSARY.read_text()).replace("`", "")
    found = dict(re.findall(r"^### (.+)\n(.+)$", text, re.MULTILINE))
    assert {word: found.get(word) for word in WORDS} == dict(WORDS)
    assert len(WORDS) >= 12
    assert list(WORDS) == sorted(WORDS, key=str.lower)
