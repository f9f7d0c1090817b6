"""Verified users: users of jobs whose creation an admission webhook saw, and of their pods."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from ipuhub.text import AuthorTrust
from jobs.history.recorder import JobRecorder
from tests.builders.ipujobs import ipujob
from usage.pods.recorder import PodRecorder
from usage.pods.resources import Pod
from usage.pods.rows import JobOwner, with_confirmed_stamp, with_unconfirmed_stamp

NOW = datetime(2026, 11, 5, 12, tzinfo=UTC)
WEBHOOKS = AuthorTrust(is_on=True, unasked=frozenset({"kube-system", "ipuhub-system"}))
CASES = [
    ("the webhooks' word", WEBHOOKS, "ada", "default", True),
    ("no webhooks", AuthorTrust(), "ada", "default", False),
    ("nobody said so", None, "ada", "default", False),
    ("a namespace they are not asked about", WEBHOOKS, "ada", "kube-system", False),
    ("nobody is named", WEBHOOKS, "", "default", False),
]


def pod(user: str, namespace: str, *, is_owned: bool = True) -> Pod:
    stamp = {"component": "ipujob", "component_name": "x", "group": "g", "instance_type": "ipu-4"}
    stamp |= {"partition": "p-1", "user": user}
    owner = {
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "name": "x",
        "uid": "u-job",
        "controller": True,
    }
    metadata: dict[str, Any] = {
        "uid": "u-pod",
        "name": "x-worker-0",
        "namespace": namespace,
        "creationTimestamp": "2026-11-05T11:00:00Z",
        "labels": {"graphcore.ai/ipujob-uid": "u-job", "graphcore.ai/role": "worker"},
        "annotations": {"ipuhub.io/usage": json.dumps(stamp | {"ipus": 4_000_000})},
        "ownerReferences": [owner] if is_owned else [],
    }
    text = msgspec.json.encode({"metadata": metadata, "spec": {}, "status": {}})
    return msgspec.json.decode(text, type=Pod)


@pytest.mark.parametrize(("case", "authors", "user", "namespace", "want"), CASES)
def test_a_job_has_a_verified_user(
    case: str, authors: AuthorTrust | None, user: str, namespace: str, want: bool
) -> None:
    job = ipujob().annotated(**{"ipuhub.io/created-by": user}).build()
    job["metadata"]["namespace"] = namespace
    found = JobRecorder(lambda _: "g", authors).read("ADDED", job, [], NOW)
    assert (found.user, found.user_verified) == (user, want), case


def test_the_pods_of_a_job_are_whose_its_record_says() -> None:
    row = PodRecorder().read("ADDED", pod("boss", "default"), [], NOW)
    assert row is not None
    mine = with_confirmed_stamp(row, JobOwner("default", "vision", "ada", user_verified=True))
    assert (mine.claim, mine.group, mine.user, mine.user_verified) == (
        "operator",
        "vision",
        "ada",
        True,
    )
    assert (mine.job_uid, mine.partition, mine.micro_ipus) == ("u-job", "p-1", 4_000_000)
    assert (row.group, row.user, row.user_verified) == ("g", "boss", False)  # unchanged


def test_without_a_record_the_stamp_waits_beside_a_claim() -> None:
    row = PodRecorder().read("ADDED", pod("boss", "default"), [], NOW)
    assert row is not None
    claim = with_unconfirmed_stamp(row)
    assert (claim.claim, claim.user, claim.user_verified) == ("annotation", "boss", False)
    assert (claim.job_uid, claim.role, claim.partition, claim.micro_ipus) == ("", "", "", 0)
    assert claim.stamp == {
        "job_uid": "u-job",
        "role": "worker",
        "instance": None,
        "attempt": None,
        "partition": "p-1",
        "micro_ipus": 4_000_000,
    }
    assert row.stamp is None


def test_a_pod_of_no_job_names_whom_it_likes() -> None:
    row = PodRecorder().read("ADDED", pod("ada", "x", is_owned=False), [], NOW)
    assert row is not None
    assert (row.claim, row.user, row.user_verified) == ("annotation", "ada", False)
