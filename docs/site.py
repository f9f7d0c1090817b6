"""Hooks of MkDocs (mkdocs.yml): pages that lie outside docs/ become pages of the site, too."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# By path in the repository: the page of the site.
OUTSIDE = {
    "README.md": "try-it.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "THREAT_MODEL.md": "threat-model.md",
    "charts/ipuhub/README.md": "reference/chart.md",
}
_SOURCES = {page: source for source, page in OUTSIDE.items()}
_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root and of the chart."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where the site has their pages."""
    del config, files
    place = page.file.src_uri
    source = _SOURCES.get(place, f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        found = OUTSIDE.get(target) or (target[5:] if target.startswith("docs/") else None)
        if found is None:
            return link[0]
        here = posixpath.relpath(found, posixpath.dirname(place) or ".")
        return f"{link[1]}{here}{link[3] or ''}{link[4]}"

    return _LINK.sub(moved, markdown)
