"""Relative links and anchors of the Markdown pages: each leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^(?:```.*?^```| {4}[^\n]*)$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "THREAT_MODEL.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def anchors_of(text: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of `text`."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        slug = words.strip().lower().replace(" ", "-")
        found.add(slug)
    return found


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links of `text`, standing in `page`, that lead nowhere."""
    broken = []
    for match in LINK.finditer(CODE.sub("", text)):
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name
        if not file.exists():
            broken.append(f"{page.relative_to(ROOT)}: {target}")
            continue
        if not anchor:
            continue
        there = file.read_text("utf-8") if name else text
        if anchor not in anchors_of(CODE.sub("", there)):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    return broken


def test_every_relative_link_and_anchor_leads_somewhere() -> None:
    assert [one for page in pages() for one in broken_links(page, page.read_text("utf-8"))] == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    listed = {(ROOT / "docs" / m["target"]).resolve() for m in LINK.finditer(index)}
    unlisted = {p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "adr"} - listed
    assert unlisted - {ROOT / "docs" / "README.md"} == set()


def test_a_link_to_nowhere_is_found() -> None:
    text = "# Here\n[a](#here) [b](#gone) [c](none.md) [d](https://x.example) [e](README.md)\n"
    page = ROOT / "docs" / "README.md"
    assert broken_links(page, text) == ["docs/README.md: #gone", "docs/README.md: none.md"]
