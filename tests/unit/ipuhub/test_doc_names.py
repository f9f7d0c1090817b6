"""Names that the pages quote exist: settings, metrics, alerts, addresses, files, labels."""

from __future__ import annotations

import ast
import html
import re
import subprocess
from functools import cache
from pathlib import Path, PurePath

import pytest

from tests.builders.documents import openapi

ROOT = Path(__file__).resolve().parents[3]
TOP = ("README.md", "CONTRIBUTING.md", "THREAT_MODEL.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
ROOMS = ("dashboard", "devcluster", "ipuhub", "jobs", "partitions", "usage")
# What a page quotes of somebody else: products that sign users in, Kubernetes, headings.
NOT_OURS = frozenset(
    {
        "Back-channel logout URL",
        "Backchannel logout session required",
        "Client authentication",
        "Full group path",
        "Group Membership",
        "Standard flow",
        "Web",
        "baseline",
        "groups",
        "prioritize",
        "restricted",
    }
)
SETTING = re.compile(r"\b(?:IPUHUB|USAGE|MONITOR|DATABASE|VIPU_CLI|IPUOF)_[A-Z0-9_]*[A-Z0-9]\b")
METRIC = re.compile(r"\bipuhub_[a-z0-9_]+")
ALERT = re.compile(r"\bIPUHub[A-Z]\w+")
ADDRESS = re.compile(r"/api/v1/[\w<>$./-]*")
FOLDERS = "|".join((*ROOMS, "charts", "containers", "docs", "examples", "templates"))
FILE = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
LABEL = re.compile(r"(?<![*\w])\*(?=\S)([^*|]+?)(?<=\S)\*(?![*\w])")


@cache
def sources() -> dict[str, str]:
    """The files of the repository that are text, by their names."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    kinds = (".py", ".html", ".js", ".yaml", ".json", ".tpl", ".toml", "Makefile")
    return {
        name: (ROOT / name).read_text("utf-8") if name.endswith(kinds) else "" for name in listed
    }


@cache
def places() -> frozenset[str]:
    """The names of all files and folders of the repository."""
    names = sources().keys()
    return frozenset(names | {f"{folder}" for name in names for folder in PurePath(name).parents})


@cache
def code() -> str:
    """All that is no page and no test of pages."""
    return "\n".join(text for name, text in sources().items() if "test_doc_names" not in name)


@cache
def words_of_code() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", code()))


@cache
def metrics() -> frozenset[str]:
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    return frozenset(re.findall(r"`(\w+)`", page))


@cache
def addresses() -> tuple[re.Pattern[str], ...]:
    paths = (*openapi()["paths"], "/api/v1/", "/api/v1/schema/", "/api/v1/usage/")
    return tuple(
        re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path).rstrip("/") + "/?") for path in paths
    )


@cache
def labels() -> frozenset[str]:
    """Texts between the tags of templates, values of attributes, texts of Python and JavaScript."""
    found: set[str] = set()
    for name, text in sources().items():
        if name.startswith("templates/"):
            found.update(re.findall(r'="([^"{]*)"', text))
            between = re.sub(r"\{[%#{].*?[%#}]\}|<[^>]+>", "\0", text, flags=re.DOTALL)
            found.update(html.unescape(" ".join(run.split())) for run in between.split("\0"))
        elif name.endswith(".js"):
            found.update(re.findall(r'"([^"\n]*)"', text))
        elif name.endswith(".py") and name.startswith(("dashboard/", "jobs/", "usage/", "ipuhub/")):
            found.update(
                node.value
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
    # Templates write some words of the code with a capital.
    return frozenset(found | {text.capitalize() for text in found if text.islower()})


def unknown(page: str) -> list[str]:
    """Return what the text of a page names and what does not exist."""
    wrong = [
        name
        for name in SETTING.findall(page)
        if name not in words_of_code() and not _is_of_an_option(name)
    ]
    wrong += [
        name
        for name in METRIC.findall(page)
        if re.sub(r"_(bucket|count|sum)$", "", name) not in metrics() and name not in TABLES
    ]
    wrong += [name for name in ALERT.findall(page) if name not in words_of_code()]
    wrong += [
        address
        for address in (found.rstrip(".") for found in ADDRESS.findall(page))
        if not any(known.fullmatch(address) for known in addresses())
    ]
    wrong += [
        name
        for name in FILE.findall(page)
        # Tests are named by their place below tests/integration; test_named_tests.py looks there.
        if name.rstrip("/") not in places() and "/test_" not in name and name not in MADE
    ]
    return wrong


TABLES = frozenset({"ipuhub_taskmessage"})
MADE = frozenset({"ipuhub/vipu-server.json"})


def _is_of_an_option(name: str) -> bool:
    """Return whether a variable stands for an option, or for a file with a setting's value."""
    of_option = re.fullmatch(r"(?:IPUHUB_SIMULATED_VIPU|IPUHUB_VIPU_AGENT|VIPU_CLI)_(\w+)", name)
    if of_option:
        option = "--" + of_option[1].lower().replace("_", "-")
        return f'"{option}"' in code() or of_option[1] == "ADMIN_PORT"
    return name.endswith("_FILE") and name.removesuffix("_FILE") in words_of_code()


def unlabelled(page: str) -> list[str]:
    """Return the labels in italics that no page of the dashboard has."""
    prose = re.sub(r"```.*?```|^ {4}.*?$|`[^`]*`", "", page, flags=re.DOTALL | re.MULTILINE)
    quoted = {" ".join(label.split()) for label in LABEL.findall(prose)}
    return sorted(quoted - labels() - NOT_OURS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_on_a_page_exists(page: Path) -> None:
    assert unknown(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_label_in_italics_is_a_label_of_the_dashboard(page: Path) -> None:
    assert unlabelled(page.read_text("utf-8")) == []


def test_names_and_labels_that_are_wrong_are_found() -> None:
    right = "`IPUHUB_HOST_NETWORK` `USAGE_ENABLED` `ipuhub_ready` `IPUHubDown` /api/v1/jobs"
    assert unknown(f"{right} /api/v1/jobs/<uid>/waiting `jobs/operator/plan.py`") == []
    wrong = ["IPUHUB_GUEST_NETWORK", "ipuhub_steady", "IPUHubUp", "/api/v1/jobz", "jobs/gone.py"]
    assert unknown(f"{' '.join(wrong[:-1])} `{wrong[-1]}`") == wrong
    assert unlabelled("Choose *Send test* or *Send twice*, **not** `*this*`.") == ["Send twice"]
