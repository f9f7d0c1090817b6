"""The table of the spec's fields is the only list of them, and all else follows from it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.crd import build_crd
from jobs.ipujob.fields import FIELDS, NUMBER, Field, FieldTable, MayChange
from jobs.ipujob.names import ANNOTATION_FINGERPRINT
from jobs.ipujob.privileges import Privileges
from jobs.ipujob.spec import known_field, parse_spec, with_defaults
from jobs.ipujob.validation import problems
from jobs.operator.effectivespec import effective_spec_of_invalid, fingerprint_of
from jobs.operator.statuskeeper import judge_crd
from jobs.webhooks.review import Review
from jobs.webhooks.validating import judge
from tests.builders.ipujobs import ipujob, observed, worker
from tests.builders.publishedcrd import build_published_crd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.builders.ipujobs import IPUJobBuilder

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "jobs/ipujob/fields.py"
NEW_ROWS = (
    Field(
        path="queueName",
        type="str",
        default="usual",
        choices=("usual", "night"),
        may_change=MayChange.ALWAYS,
        is_ours=True,
        description="Which queue it waits in.",
    ),
    Field(
        path="warmUpSeconds",
        type=NUMBER,
        minimum=1,
        may_change=MayChange.UNTIL_FINISHED,
        description="How long to wait before the start.",
    ),
)


def spec_properties(crd: dict[str, Any]) -> dict[str, Any]:
    (version,) = crd["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


@pytest.fixture
def _more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table with two rows more, for everybody who reads it."""
    for name, value in vars(FieldTable((*FIELDS.rows.values(), *NEW_ROWS))).items():
        monkeypatch.setattr(FIELDS, name, value)


def test_every_property_of_the_crd_has_a_row() -> None:
    properties = spec_properties(build_crd())
    paths = {*properties}
    for name, node in properties.items():
        paths |= {f"{name}.{inner}" for inner in node.get("properties", ())}
    assert paths == {*FIELDS.rows}


def test_a_row_says_whether_the_published_crd_has_the_field() -> None:
    published = spec_properties(build_published_crd())
    assert {*FIELDS.not_published} == {*spec_properties(build_crd())} - {*published}


def texts_of(node: ast.AST) -> list[str]:
    """The texts of a list, tuple, set or dictionary, or of one text that is split into a list."""
    if isinstance(node, ast.Attribute) and node.attr == "split":
        return str(getattr(node.value, "value", "")).split()
    parts: list[Any] = getattr(node, "elts", None) or getattr(node, "keys", None) or []
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def lists_of_fields(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text("utf-8"))
    top = {row.name for row in FIELDS.below("")} - {"launcher", "interactive", "workers"}
    for node in ast.walk(tree):
        found = {text.removeprefix("spec.") for text in texts_of(node)} & top
        if len(found) > 1:
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {sorted(found)}"


def test_no_other_module_lists_fields() -> None:
    assert len(list(lists_of_fields(TABLE))) == 0  # there each has a row of its own
    others = [path for path in (ROOT / "jobs").rglob("*.py") if "migrations" not in path.parts]
    assert [found for path in others for found in lists_of_fields(path)] == []


def test_a_list_of_fields_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    module = tmp_path / "more.py"
    for text in (
        '{"suspend", "jobInstances"}',
        '"spec.suspend spec.keepPartition".split()',
    ):
        module.write_text(f'"""Of suspend and keepPartition."""\nx = {text}\n')
        assert len(list(lists_of_fields(module))) == 1


@pytest.mark.usefixtures("_more_rows")
def test_the_crd_follows_from_a_new_row() -> None:
    properties = spec_properties(build_crd())
    assert properties["queueName"] == {
        "type": "string",
        "enum": ["usual", "night"],
        "default": "usual",
        "description": "Which queue it waits in. Default: usual.",
    }
    assert properties["warmUpSeconds"]["x-kubernetes-int-or-string"] is True
    assert known_field("spec.queueName", {}) == "spec.queueName"


@pytest.mark.usefixtures("_more_rows")
def test_what_the_operator_acts_on_follows_from_a_new_row() -> None:
    assert with_defaults(ipujob().spec)["queueName"] == "usual"
    plain = parse_spec(ipujob().with_spec(warmUpSeconds=" 30 ").spec).plain
    assert (plain["queueName"], plain["warmUpSeconds"]) == ("usual", 30)


@pytest.mark.usefixtures("_more_rows")
def test_the_checks_of_values_follow_from_a_new_row() -> None:
    wrong = ipujob().with_spec(queueName="day", warmUpSeconds=0).spec
    assert {str(problem) for problem in problems("sample", wrong)} == {
        "spec.warmUpSeconds: 0 is too small: use 1 or more",
        'spec.queueName: "day" is unknown: use one of usual, night',
    }


def refused(old: IPUJobBuilder, **fields: object) -> list[str]:
    new = {**old.build(), "spec": {**old.spec, **fields}}
    review = Review("u", "UPDATE", "ipujobs", "", "default", "anna", new, old.build())
    return [problem.field for problem in judge(review, Privileges())]


@pytest.mark.usefixtures("_more_rows")
def test_what_an_edit_may_change_follows_from_a_new_row() -> None:
    changed = {"queueName": "night", "warmUpSeconds": 5}
    assert refused(ipujob().running(), **changed) == []
    assert refused(ipujob().finished(), **changed) == ["spec.warmUpSeconds"]


@pytest.mark.usefixtures("_more_rows")
def test_what_is_kept_of_an_invalid_spec_follows_from_a_new_row() -> None:
    job = ipujob().ipus(6).running().with_spec(queueName="night", warmUpSeconds="soon")
    pod = worker(ipujob().running().build()).running()
    stamp = fingerprint_of(parse_spec(ipujob().spec)).to_text()
    pod.manifest["metadata"]["annotations"] = {ANNOTATION_FINGERPRINT: stamp}
    world = observed(job.build(), pod)
    kept = effective_spec_of_invalid(world, job.spec)
    assert kept is not None
    assert (kept.plain["queueName"], kept.plain["warmUpSeconds"]) == ("night", None)


@pytest.mark.usefixtures("_more_rows")
def test_a_crd_that_drops_the_field_of_a_new_row_is_noticed() -> None:
    assert "queueName" in judge_crd(build_published_crd()).sentence
