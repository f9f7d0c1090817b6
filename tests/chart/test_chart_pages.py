"""Values and commands of helm on the pages: the chart takes them. Needs helm.

All files of values and all `--set` of a page are one rendering, as a reader has it who does
everything that the page says; the trial is another.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.docpages import GUIDES, ROOT, blocks, commands, documents
from tests.builders.documents import read_documents
from tests.chart.rendering import CHART, template

if TYPE_CHECKING:
    from pathlib import Path

PARAMETERS = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]
SET = re.compile(r"--set(-string)?")
INLINE = re.compile(r"`(--set(?:-string)?) '?([^`']+)'?`")
OBJECT = re.compile(r"\bipuhub-ipu-operator-[a-z0-9-]*[a-z0-9]\b(?!-)")
TRIAL = "charts/ipuhub/trial-values.yaml"
CONTROLLERS = ("--set", "vipuControllers=vipu.example:8090:ipunode=pod1")  # the reader's own


def values_of(page: Path) -> list[dict[str, Any]]:
    """Return the files of values on a page."""
    return [each for each in documents(page) if "kind" not in each and {*each} <= {*PARAMETERS}]


def helm_options(page: Path) -> list[tuple[str, str]]:
    """Return the values on the command lines of a page."""
    return [
        (option, value)
        for words in commands(page)
        if words[:1] == ["helm"]
        for option, value in pairwise(words)
        if SET.fullmatch(option) or (option, value) == ("-f", TRIAL)
    ]


def renderings(page: Path, folder: Path) -> list[list[str]]:
    """Return the options of helm for a page."""
    options, inline = helm_options(page), INLINE.findall(page.read_text("utf-8"))
    trial = ("-f", TRIAL) in options
    options = [each for each in options if each != ("-f", TRIAL)]
    options += [] if trial else inline
    has_server = any("vipuServer.enabled=true" in value for _, value in options)
    files: list[str] = []
    for number, values in enumerate(values_of(page)):
        file = folder / f"{number}.yaml"
        file.write_text(json.dumps(values), encoding="utf-8")
        files += ["-f", str(file)]
        has_server = has_server or "vipuServer" in values
    found = [["-f", str(ROOT / TRIAL), *(word for each in inline for word in each)]] * trial
    if files or options:
        base = () if has_server else CONTROLLERS
        found.append([*base, *files, *(word for each in options for word in each)])
    return found


# The command of README is that of install.md.
PAGES = [page for page in GUIDES[1:] if values_of(page) or helm_options(page)]


def test_pages_with_values_are_found() -> None:
    names = {page.name for page in PAGES}
    assert names >= {"install.md", "actions.md", "vipu-agents.md", "sign-in.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_chart_takes_the_values_of_a_page_and_makes_what_it_names(
    page: Path, tmp_path: Path
) -> None:
    made: set[str] = set()
    for options in renderings(page, tmp_path):
        done = template(release="ipuhub", namespace="ipuhub-system", options=tuple(options))
        assert not done.stderr, done.stderr
        made |= {each["metadata"]["name"] for each in read_documents(done.stdout)}
    assert len(made) > 10
    assert {*OBJECT.findall("\n".join(blocks(page)))} - made == set()
