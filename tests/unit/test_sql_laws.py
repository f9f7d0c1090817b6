"""The law of the tables: an app's SQL names its own, and what others agreed to show.

What the agreed views have is shown by tests/integration/recorders/test_agreed_views.py.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from django.apps import apps

from ipuhub.models import RecordFault, WatchCheckpoint, WatchGap
from ipuhub.recording.shapes import CHECKPOINT_TABLE, FAULT_TABLE, GAP_TABLE
from tests.builders.sourcenodes import nodes_of

ROOT = Path(__file__).resolve().parents[2]
OWNERS = ("ipuhub", "jobs", "partitions", "usage")
HOUSES = (*OWNERS, "dashboard", "devcluster")
AGREED = {"jobs_owners", "partitions_capacity", "partitions_holdings"}
"""Views, each made by a migration of the app whose name it begins with."""
_AFTER = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|USING|ON|ANALYZE)\s+(?:ONLY\s+)?([a-z]+_[a-z0-9_]+)",
    re.IGNORECASE,
)


def known_tables() -> set[str]:
    return {model._meta.db_table for model in apps.get_models(include_auto_created=True)}


@cache
def texts_of(path: Path) -> list[tuple[int, str]]:
    """The texts of a module with their lines, but for docstrings; `{}` where a value is put in."""
    left_out: set[ast.AST] = set()
    found = []
    for node in nodes_of(path):  # what holds a text comes before it
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node not in left_out:
                found.append((node.lineno, node.value))
        elif isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
            texts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            found.append((node.lineno, "".join(map(str, texts))))
        elif isinstance(node, ast.Expr):
            left_out.add(node.value)
    return found


def others_tables(text: str, house: str, tables: set[str]) -> set[str]:
    """Return the tables of other apps that the SQL in `text` names without an agreement."""
    named = set(_AFTER.findall(text)) | {*re.findall(r"[a-z_]+", text)} & tables
    foreign = tuple(f"{owner}_" for owner in OWNERS if owner != house)
    return {each for each in named if each.startswith(foreign)} - AGREED


@pytest.mark.parametrize("house", HOUSES)
def test_sql_names_no_table_of_another_app(house: str) -> None:
    tables = known_tables()
    found = {
        f"{path.relative_to(ROOT)}:{line}": names
        for path in sorted((ROOT / house).rglob("*.py"))
        for line, text in texts_of(path)
        if (names := others_tables(text, house, tables))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT 1 FROM partitions_partitionlifetime", {"partitions_partitionlifetime"}),
        ("jobs_jobrecord", {"jobs_jobrecord"}),
        ("JOIN jobs_new_view AS j ON true", {"jobs_new_view"}),
        ("CREATE TRIGGER t AFTER INSERT ON ipuhub_watchgap", {"ipuhub_watchgap"}),
        ("SELECT 1 FROM partitions_holdings JOIN jobs_owners USING (uid)", set()),
        ("DELETE FROM usage_podlifetime", set()),
        ("jobs_list", set()),
    ],
)
def test_names_are_found_in_sql(text: str, names: set[str]) -> None:
    assert others_tables(text, "usage", known_tables()) == names


def test_the_ground_floor_names_the_tables_that_it_shows() -> None:
    tables = {WatchCheckpoint: CHECKPOINT_TABLE, WatchGap: GAP_TABLE, RecordFault: FAULT_TABLE}
    assert {model: model._meta.db_table for model in tables} == tables


def test_each_agreed_view_is_made_by_its_owner_and_read_by_another() -> None:
    for view in AGREED:
        owner = view.partition("_")[0]
        houses = {
            path.relative_to(ROOT).parts[0]
            for house in HOUSES
            for path in (ROOT / house).rglob("*.py")
            if any(view in text for _, text in texts_of(path))
        }
        assert owner in houses
        assert houses - {owner}
