"""The owner of a partition of Graphcore's operator, by its id: one job, or none."""

from __future__ import annotations

from typing import Any

from partitions.proxy.drift import UntrackedPartition
from partitions.proxy.original import Known, findings
from partitions.proxy.tracker import encode_entry
from tests.builders.trackerentries import entry


def job(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    spec = spec or {"ipusPerJobInstance": "4", "jobInstances": 1}
    return {"metadata": {"uid": f"{namespace}/{name}", "name": name, "namespace": namespace},
            "spec": spec}  # fmt: skip


def only(partition: str, *jobs: dict[str, Any], size: int = 4, controllers: int = 1) -> Any:
    found = tuple(UntrackedPartition(f"v{n}", "l", partition, size) for n in range(controllers))
    return next(findings({"key": partition}, Known(found, (), jobs)))


def test_an_id_that_fits_two_jobs_belongs_to_none() -> None:
    one, other = job("a-b", "c"), job("a", "b-c")
    assert only("p-a-b-c-0", one).stranger.claim.uid == "c/a-b"
    found = only("p-a-b-c-0", one, other)
    assert found.stranger is None
    assert found.reason == "p-a-b-c-0 on v0: its id fits several jobs (c/a-b, b-c/a)"


def test_an_id_that_two_controllers_have_belongs_to_none() -> None:
    found = only("p-a-b-0", job("a", "b"), controllers=2)
    assert found.stranger is None
    assert found.reason == "p-a-b-0 on v0: 2 controllers have a partition of this id"


def test_jobs_in_the_words_of_the_first_version_have_one_instance() -> None:
    first = job("a", "b", modelReplicas="2", ipusPerModelReplica=2)
    assert only("p-a-b-0", first).stranger.claim.instance == 0
    assert only("p-a-b-1", first).stranger is None
    assert only("p-a-b-0", first, size=2).reason == "p-a-b-0 on v0 has 2 IPUs, but b/a asks for 4"


def test_part_of_a_longer_id_is_not_that_id() -> None:
    known = Known(
        (UntrackedPartition("v1", "l", "p-a-b-1", 4),), (), (job("a", "b", jobInstances=20),)
    )
    (found,) = findings({"key": "p-a-b-10, xp-a-b-1"}, known)
    assert found.reason == "it names no partition that a V-IPU controller has"


def test_values_of_our_own_are_passed_over() -> None:
    ours = entry()
    assert [*findings({ours.key: encode_entry(ours)}, Known((), (ours,), ()))] == []
