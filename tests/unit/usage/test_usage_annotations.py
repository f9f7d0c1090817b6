"""The user and group that a pod counts for, and valid stamps of the operator."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from jobs.ipujob.names import LABEL_JOB_UID
from usage.pods.annotations import InvalidAnnotation, annotation_of, claim_of
from usage.pods.resources import PodMeta

USAGE = {"component": "job", "component_name": "train", "group": "physics", "instance_type": "big"}
STAMP = {**USAGE, "component": "ipujob", "partition": "p-1", "ipus": 1_500_000}
OWNER = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "uid": "j", "controller": True}
LABELS = {LABEL_JOB_UID: "j", "graphcore.ai/role": "worker", "graphcore.ai/instance": "0"}


def meta(
    usage: Any = None, key: str = "ipuhub.io/usage", owner: Any = None, labels: Any = None
) -> PodMeta:
    text = usage if isinstance(usage, str) else json.dumps(usage)
    return msgspec.convert(
        {
            "uid": "u",
            "namespace": "team",
            "labels": labels,
            "annotations": None if usage is None else {key: text},
            "ownerReferences": owner and [owner],
        },
        PodMeta,
    )


def test_both_keys_are_read_and_ours_goes_before() -> None:
    assert annotation_of(meta(USAGE, "primehub.io/usage")) == json.dumps(USAGE)
    both = meta(USAGE)
    both.annotations = {"primehub.io/usage": "theirs", "ipuhub.io/usage": "ours"}
    assert annotation_of(both) == "ours"
    assert annotation_of(meta()) is None


def test_an_annotation_is_a_claim_without_ipus() -> None:
    found = claim_of(meta(), json.dumps({**STAMP, "user": "ada", "unknown": 1}))
    assert (found.claim, found.group, found.user) == ("annotation", "physics", "ada")
    assert (found.micro_ipus, found.partition, found.job_uid) == (None, "", "")


def test_the_operators_stamp_is_read_on_a_pod_that_its_job_controls() -> None:
    found = claim_of(meta(owner=OWNER, labels=LABELS), json.dumps(STAMP))
    assert (found.claim, found.micro_ipus, found.partition) == ("operator", 1_500_000, "p-1")
    assert (found.job_uid, found.role, found.instance, found.attempt) == ("j", "worker", 0, None)


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        pytest.param({"controller": False}, LABELS, id="an owner that controls nothing"),
        pytest.param({"kind": "Job"}, LABELS, id="another kind"),
        pytest.param({"apiVersion": "batch/v1"}, LABELS, id="another group"),
        pytest.param({"apiVersion": "graphcore.ai.evil/v1"}, LABELS, id="a look-alike"),
        pytest.param({"uid": "k"}, LABELS, id="another job than the label's"),
        pytest.param({}, {}, id="no label"),
    ],
)
def test_a_forged_stamp_is_only_a_claim(change: dict[str, Any], labels: dict[str, str]) -> None:
    found = claim_of(meta(owner=OWNER | change, labels=labels), json.dumps(STAMP))
    assert (found.claim, found.micro_ipus) == ("annotation", None)


def test_no_annotation_counts_for_the_namespace() -> None:
    found = claim_of(meta(), None)
    assert (found.claim, found.group, found.user) == ("namespace", "team", "")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "cannot be read"),
        ("null", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        (json.dumps({"component": "job"}), "component_name"),
        (json.dumps({**USAGE, "group": None}), "group"),
        (json.dumps({**USAGE, "group": "a\0"}), "NUL"),
        (json.dumps({**USAGE, "user": "x" * 254}), "longer than 253"),
        (json.dumps({**USAGE, "ipus": -1}), "ipus"),
        (json.dumps({**USAGE, "ipus": 2**63}), "ipus"),
        (json.dumps({**USAGE, "ipus": 1.5}), "ipus"),
    ],
)
def test_a_broken_annotation_says_what_is_wrong(text: str, want: str) -> None:
    with pytest.raises(InvalidAnnotation, match=want):
        claim_of(meta(), text)
