"""The actions that a job's state offers, and their API writes."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.actions.changes import (
    BadChangeError,
    change_of,
    create,
    next_name,
    offered_actions,
    requested_verb,
    run_again,
)
from dashboard.actions.manifests import MOST_BYTES, read_manifest
from jobs.models import JobRecord

NINE = dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC)
HEAD = "apiVersion: graphcore.ai/v1alpha1\nkind: IPUJob\nmetadata: {name: a}\n"


def job(**given: Any) -> JobRecord:
    spec = {"ipusPerJobInstance": 1, "workers": {}} | given.pop("spec", {})
    values = {"uid": "u1", "namespace": "team-a", "name": "train", "status": "Running"}
    return JobRecord(**(values | {"spec": spec} | given))


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, ["suspend", "scale", "run-again", "cancel"]),
        ({"spec": {"suspend": True}}, ["resume", "scale", "run-again", "cancel"]),
        ({"spec": {"launcher": {"command": ["x"]}}}, ["suspend", "run-again", "cancel"]),
        ({"completed_at": NINE}, ["run-again", "cancel"]),
        ({"deleted_at": NINE}, ["run-again"]),
    ],
)
def test_a_state_offers_what_makes_sense_in_it(given: dict[str, Any], want: list[str]) -> None:
    assert [action.key for action in offered_actions(job(**given))] == want


@pytest.mark.parametrize(("given", "want"), [({}, "Cancel"), ({"completed_at": NINE}, "Delete")])
def test_an_ended_job_is_deleted_and_not_canceled(given: dict[str, Any], want: str) -> None:
    (offered,) = (each for each in offered_actions(job(**given)) if each.key == "cancel")
    change = change_of(job(**given), "cancel", {})
    assert (offered.label, change.action) == (want, offered)
    assert change.kubectl == "kubectl -n team-a delete ipujob train"


@pytest.mark.parametrize(
    ("key", "ended_at", "want"),
    [
        ("cancel", None, "cancel"),
        ("cancel", NINE + dt.timedelta(seconds=1), "cancel"),
        ("cancel", NINE, "delete"),
        ("run-again", NINE, "run again"),
        ("of-a-later-release", NINE, "of-a-later-release"),
    ],
)
def test_a_request_is_named_by_the_state_of_its_job_then(
    key: str, ended_at: dt.datetime | None, want: str
) -> None:
    assert requested_verb(key, NINE, ended_at) == want


@pytest.mark.parametrize(
    ("key", "given", "want"),
    [
        ("resume", {}, "The job is not suspended."),
        ("suspend", {"spec": {"suspend": True}}, "The job is suspended."),
        ("scale", {"spec": {"launcher": {}}}, None),
        ("scale", {"spec": {"launcher": {"command": ["x"]}}}, "Only jobs without a launcher"),
        ("suspend", {"completed_at": NINE}, "The job has ended."),
        ("cancel", {"deleted_at": NINE}, "The job is no longer in the cluster."),
    ],
)
def test_an_action_that_the_state_does_not_allow_is_refused(
    key: str, given: dict[str, Any], want: str | None
) -> None:
    if want is None:
        assert change_of(job(**given), key, {"instances": "2"})
        return
    with pytest.raises(BadChangeError, match=want):
        change_of(job(**given), key, {"instances": "2"})


def test_each_write_names_the_object_by_its_uid() -> None:
    for key in ("suspend", "scale"):
        assert change_of(job(), key, {"instances": 3}).body["metadata"] == {"uid": "u1"}
    assert change_of(job(), "cancel", {}).uid == "u1"


def test_the_kubectl_lines_do_the_same() -> None:
    line = change_of(job(), "suspend", {}).kubectl
    words = shlex.split(line)
    assert words[:6] == ["kubectl", "-n", "team-a", "patch", "ipujob", "train"]
    assert json.loads(words[-1]) == {"spec": {"suspend": True}}
    line = change_of(job(), "scale", {"instances": " 3 "}).kubectl
    assert line == "kubectl -n team-a scale ipujob train --replicas 3"
    assert change_of(job(), "cancel", {}).kubectl == "kubectl -n team-a delete ipujob train"


@pytest.mark.parametrize("value", ["0", "-1", "", None, "1.5", "x", True, 2**31, "9" * 5000, "٣"])
def test_a_number_of_instances_is_a_whole_one(value: object) -> None:
    with pytest.raises(BadChangeError, match="whole number"):
        change_of(job(), "scale", {"instances": value})


def test_another_run_has_the_labels_and_the_spec_and_starts() -> None:
    old = job(spec={"suspend": True}, labels={"team": "x"}, deleted_at=NINE)
    made = change_of(old, "run-again", {}).body
    assert made["metadata"] == {
        "name": "train-run2",
        "namespace": "team-a",
        "labels": {"team": "x"},
    }
    assert "suspend" not in made["spec"]
    assert old.spec["suspend"] is True
    for name in ("A", "a_b", "-a", "", "a" * 64, "a\n", "ä"):
        with pytest.raises(BadChangeError):
            run_again(old, name)


@given(st.from_regex(r"\A[a-z]([-a-z0-9.]{0,60}[a-z0-9])?\Z"))
def test_the_next_name_is_a_new_and_valid_one(name: str) -> None:
    following = next_name(name)
    assert following != name
    assert create(
        {
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUJob",
            "metadata": {"name": following, "namespace": "a"},
            "spec": {},
        }
    )
    assert next_name(following) not in {name, following}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "one object, not 0"),
        ("a: 1\n---\nb: 2\n", "one object, not 2"),
        ("[1]", "must be an object"),
        ("a: [", "not valid YAML in line 2"),
        ("a: 1\na: 2\n", "the key 'a' comes twice"),
        ("a: &x [1]\nb: *x\n", "has an alias"),
        ("[" * 500, "deeper than"),
        ("x" * (MOST_BYTES + 1), "larger than 256 KiB"),
        ("!!python/object/apply:os.system [id]", "not valid YAML"),
        ("\0", "not valid YAML"),
        ("kind: Pod", "must have apiVersion"),
        (f"{HEAD}", "must have a spec"),
        (f"{HEAD}spec: {{1: 2}}", "write keys as text"),
        (f"{HEAD}spec: {{a: .nan}}", "JSON does not know"),
        (f"{HEAD}spec: {{a: 99999999999999999999}}", "more than 64 bits"),
        (f"{HEAD}spec: {{a: !!binary aGk=}}", "type bytes"),
        (f'{HEAD}spec: {{a: "\\0"}}', "a character that no text may contain"),
    ],
)
def test_a_manifest_that_is_none_is_refused_with_what_is_wrong(text: str, want: str) -> None:
    with pytest.raises(BadChangeError, match=want):
        create(read_manifest(text, "team-a"))


def test_a_manifest_gets_the_namespace_and_dates_stay_text() -> None:
    found = read_manifest(f"{HEAD}spec: {{env: 2026-11-21}}", "team-a")
    change = create(found)
    assert (change.namespace, change.name) == ("team-a", "a")
    assert found["spec"]["env"] == "2026-11-21"


@given(st.text(max_size=200))
def test_any_text_is_a_manifest_or_refused_in_words(text: str) -> None:
    with pytest.raises(BadChangeError, match=r"\.$"):  # so short a text is no IPUJob
        create(read_manifest(text, "team-a"))
