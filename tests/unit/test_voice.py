"""Pages, settings, reasons, metrics and guides avoid phrases that make readers stop."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BANNED = (
    r"anew",
    r"whoever",
    r"what was",
    r"that of",
    r"those of",
    r"held against",
    r"(is|are|was|were|be) told",
    r"somebody",
    r"nobody",
    r"for ever",
    r"goes on",
    r"wherever",
    r"as it stands",
    r"(is|are|was|were) away",
    r"(is|are|was|were|be) asked",
    r"(is|are) no (date|list|object|number|name)",
)
GUIDES = ("docs/user/*.md", "docs/admin/*.md", "docs/reference/*.md", "docs/glossary.md")
PAPERS = ("README.md", "CONTRIBUTING.md", "THREAT_MODEL.md", "docs/adr/*.md", "docs/developer/*.md")
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("templates/**/*.html", *GUIDES, *PAPERS)
    for path in ROOT.glob(pattern)
)
PHRASE = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)


def shown(page: Path) -> str:
    """The page without the parts that no reader sees: tags of templates, code."""
    text = (ROOT / page).read_text()
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", " ", text)
    return re.sub(r"`[^`\n]*`", " ", text)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_page_uses_a_phrase_that_reads_as_translated(page: Path) -> None:
    lines = enumerate(shown(page).splitlines(), start=1)
    found = [f"{page}:{number}: {line.strip()}" for number, line in lines if PHRASE.search(line)]
    assert not found, "\n".join(found)


def test_settings_reasons_and_metrics_are_among_the_pages() -> None:
    names = {page.name for page in PAGES}
    assert {"settings.md", "reasons.md", "metrics.md", "glossary.md", "base.html"} <= names


@pytest.mark.parametrize("page", ["settings.md", "reasons.md", "metrics.md"])
def test_each_row_of_a_reference_begins_and_ends_as_a_sentence(page: str) -> None:
    rows = (ROOT / "docs/reference" / page).read_text().splitlines()
    sentences = [row.split(" | ")[-1].removesuffix(" |") for row in rows if "| `" in row]
    assert sentences
    for sentence in sentences:
        assert re.match(r"[A-Z0-9`\[(+]|[a-z]+[:_/(]", sentence), sentence
        assert sentence.endswith((".", ")")), sentence


ROOMS = ("dashboard", "devcluster", "ipuhub", "jobs", "partitions", "usage")
UNSPOKEN = ("Whether", "What", "Who", "Whose", "When", "Where", "Why", "Which", "How")


def said_of_functions(room: str) -> dict[str, str]:
    """Return the docstrings of a room's functions, by file and line."""
    return {
        f"{path.relative_to(ROOT)}:{node.lineno}": said
        for path in (ROOT / room).rglob("*.py")
        if "protos" not in path.parts  # generated
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (said := ast.get_docstring(node))
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_function_says_what_it_does_with_a_verb_or_a_noun(room: str) -> None:
    found = said_of_functions(room)
    assert len(found) > 100
    assert {at: said for at, said in found.items() if said.split()[0] in UNSPOKEN} == {}
