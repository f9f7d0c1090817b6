"""The status under a CRD with only the published fields."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from jobs.ipujob.crd import build_crd
from jobs.ipujob.storedstatus import CARRIER, OWN_FIELDS
from jobs.operator.statuscarrier import (
    has_stored_decisions,
    merged,
    plain_conditions,
    recovered,
    with_carried_fields,
    with_carrier,
    without_carrier,
)
from jobs.operator.statuskeeper import Keeping, judge_crd
from tests.builders.documents import our_crd, read_yaml
from tests.builders.ipujobs import ipujob, launcher, partition, worker
from tests.builders.plans import with_partition
from tests.builders.publishedcrd import STATUS_FIELDS, build_published_crd

RUNNING = {"type": "Running", "status": "True", "reason": "IPUJobRunning"}
STORED = {
    "launcherStatus": "Running",
    "conditions": [RUNNING],
    "instances": [{"index": 0, "attempt": 2, "state": "Running"}],
    "partitions": [{"instance": 0, "id": "p-a", "state": "active"}],
    "ipus": 4,
}
CHANGES = {"instances": [{"index": 0, "attempt": 3, "state": "Restarting"}], "restartCount": 3}


def pruned(found: dict[str, Any]) -> dict[str, Any]:
    """Return the status as the published schema keeps it."""
    return {name: value for name, value in found.items() if name in STATUS_FIELDS}


def schema_of_status(crd: dict[str, Any]) -> dict[str, Any]:
    (version,) = crd["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return found


def test_our_own_crd_keeps_everything() -> None:
    assert judge_crd(build_crd()).keeping is Keeping.ALL
    assert judge_crd(build_crd()).sentence == ""
    installed = Path("charts/ipuhub/files/graphcore.ai_ipujobs.yaml").read_text(encoding="utf-8")
    assert judge_crd(read_yaml(installed)).sentence == ""


def leaves(schema: dict[str, Any], path: str = "") -> list[str]:
    here = schema.get("items", schema)
    if "properties" not in here:
        return [path[1:]]
    return [
        leaf for name, part in here["properties"].items() for leaf in leaves(part, f"{path}.{name}")
    ]


@pytest.mark.parametrize(
    "path", [path for path in leaves(schema_of_status(our_crd())) if path.startswith(OWN_FIELDS)]
)
def test_an_older_crd_of_ours_that_lacks_any_field_is_noticed(path: str) -> None:
    crd = our_crd()
    here = schema_of_status(crd)
    *parents, name = path.split(".")
    for parent in parents:
        here = here["properties"][parent]
        here = here.get("items", here)
    del here["properties"][name]
    assert judge_crd(crd).keeping is Keeping.CONDITIONS


def test_the_published_crd_is_named_with_what_it_drops_and_what_helps() -> None:
    found = judge_crd(build_published_crd())
    assert found.keeping is Keeping.CONDITIONS
    for word in ("status.instances", "status.partitions", "spec.suspend", "keepPartition", "apply"):
        assert word in found.sentence


@pytest.mark.parametrize(
    "change",
    [
        lambda status: status["properties"].pop("conditions"),
        lambda status: status["properties"].pop("launcherStatus"),
        lambda status: status["properties"]["conditions"]["items"]["properties"].pop("message"),
        lambda status: status.pop("properties"),
    ],
)
def test_a_crd_that_keeps_no_decision_is_not_worked_with(change: Any) -> None:
    crd = build_published_crd()
    change(schema_of_status(crd))
    assert judge_crd(crd).keeping is Keeping.NOTHING


def test_a_crd_that_keeps_what_it_does_not_know_keeps_everything() -> None:
    loose = build_published_crd()
    schema_of_status(loose)["x-kubernetes-preserve-unknown-fields"] = True
    assert judge_crd(loose).keeping is Keeping.ALL
    old = build_published_crd() | {}
    old["spec"]["preserveUnknownFields"] = True
    assert judge_crd(old).sentence == ""


def test_what_is_dropped_travels_in_a_condition_in_the_same_write() -> None:
    written = with_carrier(STORED, CHANGES, "now")
    kept = pruned(merged(STORED, written))
    assert "instances" not in kept
    assert with_carried_fields(kept)["instances"] == CHANGES["instances"]
    assert with_carried_fields(kept)["partitions"] == STORED["partitions"]
    assert has_stored_decisions(kept, STORED, written)
    assert plain_conditions(with_carried_fields(kept)) == [RUNNING]
    again = with_carrier(with_carried_fields(kept), {"ipus": 0}, "later")
    assert [c["type"] for c in again["conditions"]] == ["Running", CARRIER]


def test_without_it_the_decision_is_seen_to_be_lost() -> None:
    assert not has_stored_decisions(pruned(merged(STORED, CHANGES)), STORED, CHANGES)


def test_once_the_crd_keeps_our_fields_they_go_where_they_belong() -> None:
    kept = pruned(merged(STORED, with_carrier(STORED, CHANGES, "now")))
    written = without_carrier(with_carried_fields(kept), {"ipus": 0})
    after = merged(kept, written)
    assert after["instances"] == CHANGES["instances"]
    assert after["conditions"] == [RUNNING]
    assert without_carrier(STORED, {"ipus": 0}) == {"ipus": 0}


@pytest.mark.parametrize("message", ["", "{", "[1]", None, 7])
def test_a_carrier_that_somebody_has_broken_is_none(message: Any) -> None:
    broken = {"conditions": [{"type": CARRIER, "status": "False", "message": message}, "odd"]}
    assert with_carried_fields(copy.deepcopy(broken)) == broken
    assert with_carried_fields({"conditions": 7}) == {"conditions": 7}


def test_a_job_whose_record_was_lost_goes_on_where_its_pods_are() -> None:
    """Another CRD was installed under a running job: what it drops is gone from every read."""
    job = ipujob().running()
    built = job.build()
    seen = with_partition(
        job, worker(built).attempt(2).running(), launcher(built).attempt(2).running()
    )
    lost = {k: v for k, v in seen.status().items() if k in STATUS_FIELDS} | {"restartCount": 2}
    found = recovered(lost, seen.pods, {0: partition(attempt=2)})
    assert found["instances"] == [{"index": 0, "attempt": 2, "state": "Running", "restarts": 2}]
    assert recovered({}, seen.pods, {}) == {}
    assert recovered(STORED, seen.pods, {}) is STORED


def test_an_instance_that_a_job_was_scaled_down_by_is_not_recovered() -> None:
    """Its released partition is known for a while: each pass would write it, and the next again."""
    left = {1: partition(attempt=2)}
    assert recovered(STORED, (), left) is STORED
    found = recovered(STORED, (), left, is_malformed=True)
    assert [entry["index"] for entry in found["instances"]] == [0, 1]
