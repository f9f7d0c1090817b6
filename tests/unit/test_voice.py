"""Pages, guides, messages and docstrings avoid phrases that make readers stop."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.builders.sourcenodes import nodes_of, parsed

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
    r"cause why",
    r"(is|are|was|were) away",
    r"(is|are|was|were|be) asked",
    r"(is|are) no (date|list|object|number|name)",
)
ONLY_IN_CODE = (r"(came|became) of", r"who asks", r"a moment ago", r"in the place of", r"hears? of")
GUIDES = ("docs/user/*.md", "docs/admin/*.md", "docs/reference/*.md", "docs/glossary.md")
PAPERS = ("README.md", "CONTRIBUTING.md", "THREAT_MODEL.md", "docs/adr/*.md", "docs/developer/*.md")
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("templates/**/*.html", *GUIDES, *PAPERS)
    for path in ROOT.glob(pattern)
)
PHRASE = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)
RIDDLE = re.compile(rf"\b({'|'.join((*BANNED, *ONLY_IN_CODE))})\b", re.IGNORECASE)


def readable_text(page: Path) -> str:
    """The page without the parts that no reader sees: tags of templates, code."""
    text = (ROOT / page).read_text()
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", " ", text)
    return re.sub(r"`[^`\n]*`", " ", text)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_page_uses_a_phrase_that_reads_as_translated(page: Path) -> None:
    lines = enumerate(readable_text(page).splitlines(), start=1)
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
PRIVATE = {"said", "told", "asked", "shown", "why"}  # names that say nothing of what they hold
UNSPOKEN = ("Whether", "What", "Who", "Whose", "When", "Where", "Why", "Which", "How")
Said = dict[str, str]  # by file and line
NAMING = {ast.arg, ast.Name, ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef}


class Words:
    """The docstrings and messages of a room. A message is any other text of several words: what is
    logged, raised, answered, written into a status or shown by `--help` all begins as one."""

    def __init__(self) -> None:
        self.modules: Said = {}
        self.functions: Said = {}
        self.classes: Said = {}
        self.messages: Said = {}
        self.names: Said = {}

    def read(self, path: Path) -> None:
        """Add the words of a file."""
        file = path.relative_to(ROOT)
        explained = set()  # texts that are a statement alone: docstrings
        # Nobody else reads the tests, whose trees need half a gigabyte.
        nodes = nodes_of(path) if file.parts[0] in ROOMS else ast.walk(parsed(path))
        for node in nodes:  # a statement before its text
            kind = type(node)
            if kind is ast.Expr and isinstance(node.value, ast.Constant):
                explained.add(node.value)
            elif kind is ast.Constant:
                text = node.value
                if isinstance(text, str) and " " in text and node not in explained:
                    self.messages[f"{file}:{node.lineno}"] = text
            elif kind in NAMING:
                self._name(node, f"{file}:{getattr(node, 'lineno', 0)}")

    def _name(self, node: ast.AST, at: str) -> None:
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                self.names[f"{at} {name}"] = name
            case ast.Module():
                self.modules[at] = ast.get_docstring(node) or ""
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.names[f"{at} {name}"] = name
                self.functions[at] = ast.get_docstring(node) or ""
            case ast.ClassDef():
                self.classes[at] = ast.get_docstring(node) or ""


@cache
def words_of(room: str) -> Words:
    """Return the words of a room, without generated code."""
    words = Words()
    for path in sorted((ROOT / room).rglob("*.py")):
        if "protos" not in path.parts:
            words.read(path)
    return words


def asking(texts: Said) -> Said:
    """Return the texts that begin like a question."""
    return {at: text for at, text in texts.items() if text and text.split()[0].title() in UNSPOKEN}


def translated(texts: Said, phrase: re.Pattern[str] = PHRASE) -> Said:
    """Return the texts with a phrase that makes a reader stop."""
    return {at: text for at, text in texts.items() if phrase.search(" ".join(text.split()))}


def without_layer(texts: Said) -> Said:
    """Return docstrings of modules without the layer in front: `io: ...`."""
    return {at: re.sub(r"^(domain|io|glue): ", "", text) for at, text in texts.items()}


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_a_module_is_described_by_a_noun(room: str) -> None:
    found = without_layer(words_of(room).modules)
    assert len(found) > 50
    assert asking(found) == {}


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_docstrings_are_plain(room: str) -> None:
    assert translated(words_of(room).modules, RIDDLE) == {}
    assert translated(words_of(room).functions, RIDDLE) == {}
    assert translated(words_of(room).classes) == {}


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_a_function_says_what_it_does_with_a_verb_or_a_noun(room: str) -> None:
    found = words_of(room).functions
    assert len(found) > 100
    assert asking(found) == {}


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_a_class_is_named_by_a_noun(room: str) -> None:
    found = words_of(room).classes
    assert len(found) > 50
    assert asking(found) == {}


@pytest.mark.parametrize("room", ROOMS)
def test_no_message_uses_a_phrase_that_reads_as_translated(room: str) -> None:
    found = words_of(room).messages
    assert len(found) > 100
    assert translated(found) == {}


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_a_name_says_what_it_holds(room: str) -> None:
    found = words_of(room).names
    assert len(found) > 500
    assert {at: name for at, name in found.items() if name in PRIVATE} == {}
