"""The examples of the guides: their blocks of code, and the commands in them."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
GUIDES = (
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/admin/*.md")),
    *sorted(ROOT.glob("docs/user/*.md")),
    ROOT / "docs/developer/chart.md",
)
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n(?:\n(?= {4}))?)+", re.MULTILINE)


@cache
def blocks(page: Path) -> tuple[str, ...]:
    """Return the blocks of code of a page, without their indentation."""
    text = page.read_text("utf-8")
    fenced = [found[3] for found in _FENCED.finditer(text)]
    rest = _FENCED.sub("\n", text)
    found = [each[0] for each in _INDENTED.finditer(rest)]
    return tuple(_dedented(block) for block in (*fenced, *found))


def _dedented(block: str) -> str:
    lines = block.splitlines()
    depth = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[depth:] for line in lines)


def documents(page: Path) -> Iterator[dict[str, Any]]:
    """Yield the YAML objects on a page: manifests, and values of the chart."""
    for block in blocks(page):
        if re.match(r"(#.*\n)?[A-Za-z]\w*:(\s|$)", block):
            yield from (each for each in yaml.safe_load_all(block) if isinstance(each, dict))


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command in the blocks of a page, those after a pipe by themselves."""
    for block in blocks(page):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            yield from _words(line.strip().removeprefix("$ "))


def _words(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if word.startswith("#"):
                break
            if set(word) <= set("|&;"):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # a quotation mark in an output
        return
    yield words
