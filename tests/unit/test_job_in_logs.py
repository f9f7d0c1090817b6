"""A log line about one job names it by its UID, under the same key in every process."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception"}
FOLDERS = ("jobs/operator", "partitions/proxy")
# What names a job or its partition in a line.
NAMING = {"job", "uid", "id", "instance"}


def nameless(source: str) -> list[int]:
    """Return the lines of calls that log about a job or a partition without the job's UID."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if call.func.attr in LEVELS and ast.unparse(call.func.value) == "log":
            given = {word.arg for word in call.keywords}
            if given & NAMING and "job_uid" not in given:
                found.append(call.lineno)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_line_about_a_job_has_its_uid(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    found = {str(file.relative_to(ROOT)): nameless(file.read_text("utf-8")) for file in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ('log.warning("lost", id=entry.id)', [1]),
        ('log.exception("failed", uid=uid)', [1]),
        ('log.info("done", job=path, job_uid=uid)', []),
        ('log.info("lost", **entry.log_fields)', []),
        ('log.info("listens", port=1)', []),
    ],
)
def test_such_a_line_is_recognized(line: str, want: list[int]) -> None:
    assert nameless(line) == want
