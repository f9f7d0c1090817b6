"""The rules of an IPUJob, each with the sentence a user gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.fields import whole_number
from jobs.ipujob.spec import parse_spec, with_defaults
from jobs.ipujob.validation import problems
from tests.builders.ipujobs import ipujob

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder

CONTAINER = "spec.workers.template.spec.containers[0]"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}


def _nested(levels: int) -> Any:
    value: Any = []
    for level in range(levels - 1):
        value = {"a": value} if level % 2 else [value]
    return value


def judge(job: IPUJobBuilder) -> dict[str, str]:
    return {p.field: p.message for p in problems(job.manifest["metadata"]["name"], job.spec)}


@pytest.mark.parametrize(
    "job",
    [
        ipujob(),
        ipujob().interactive(),
        ipujob().current_shape(),
        ipujob().with_spec(odd=_nested(100)),
        ipujob().with_spec(activeDeadlineSeconds=2**63 - 1),
        ipujob().without_launcher().instances(3),
        ipujob().with_spec(modelReplicas=4, ipusPerModelReplica="1"),
        ipujob("a" * 63),
        ipujob().ipus(64),
        ipujob().with_spec(modelReplicasPerWorker="2"),
        ipujob().with_spec(restartPolicy={"type": "ExitCode", "exitCodes": "1,5,10-127"}),
        ipujob().with_spec(restartPolicy={"type": "ExitCode", "exitCodes": "0,9-9,255"}),
        ipujob().with_spec(restartPolicy={"type": "OnFailure", "backOffLimit": 0}),
        ipujob().workers(1000),
        ipujob().without_launcher().instances(10).workers(100),
        ipujob().interactive(1),
        ipujob().with_spec(activeDeadlineSeconds=1),
        ipujob().with_spec(suspend=True, activeDeadlineSeconds=5, ttlSecondsAfterFinished=0),
        ipujob().with_spec(restartPolicy=None, cleanPodPolicy="All", keepPartition=True),
    ],
)
def test_these_jobs_are_valid(job: IPUJobBuilder) -> None:
    assert judge(job) == {}
    parse_spec(job.spec)


@pytest.mark.parametrize(
    ("job", "want_field", "want_words"),
    [
        (
            ipujob("a" * 64),
            "metadata.name",
            ["64 characters", "the limit is 63", "shorten it by 1"],
        ),
        (
            ipujob().with_spec(modelReplicas="3"),
            "spec.ipusPerModelReplica",
            ["is 3 IPUs", "not a power of two", "use 2 or 4"],
        ),
        (ipujob().ipus(6), "spec.ipusPerJobInstance", ["6 IPUs", "use 4 or 8"]),
        (ipujob().ipus(128), "spec.ipusPerJobInstance", ["128 IPUs", "use 64 or less"]),
        (
            ipujob().with_spec(modelReplicas="32", ipusPerModelReplica="4"),
            "spec.ipusPerModelReplica",
            ["is 128 IPUs", "exceeds", "64 or less"],
        ),
        (ipujob().ipus(0), "spec.ipusPerJobInstance", ["0 is too small", "use 1 or more"]),
        (
            ipujob().with_spec(ipusPerJobInstance="4"),
            "spec.ipusPerJobInstance",
            ["use only one way", "ipusPerJobInstance: 4, jobInstances: 1"],
        ),
        (
            ipujob().with_spec(jobInstances=1),
            "spec.jobInstances",
            ["use only one way", "ipusPerJobInstance: 4, jobInstances: 1"],
        ),
        (
            ipujob().with_spec(modelReplicas=None),
            "spec.modelReplicas",
            ["is required with ipusPerModelReplica"],
        ),
        (
            ipujob().with_spec(modelReplicas=None, ipusPerModelReplica=None),
            "spec.ipusPerJobInstance",
            ["is required", "power of two up to 64"],
        ),
        (
            ipujob().with_spec(modelReplicas="four"),
            "spec.modelReplicas",
            ['"four" is not a whole number'],
        ),
        (
            ipujob().with_spec(modelReplicas="--4"),
            "spec.modelReplicas",
            ['"--4" is not a whole number'],
        ),
        (
            ipujob().with_spec(backOffLimit=10**5000, ttlSecondsAfterFinished=2**63),
            "spec.ttlSecondsAfterFinished",
            ["a number of more than 64 bits is not a whole number"],
        ),
        (
            ipujob().with_spec(activeDeadlineSeconds=[10**5000]),
            "spec.activeDeadlineSeconds",
            ["a list is not a whole number"],
        ),
        (
            ipujob().with_spec(cleanPodPolicy=10**5000),
            "spec.cleanPodPolicy",
            ["a number of more than 64 bits is unknown"],
        ),
        (
            ipujob().with_spec(odd=_nested(101)),
            "spec.odd",
            ["deeper than 100 levels"],
        ),
        (ipujob().with_spec(workers=None), "spec.workers", ["is required"]),
        (
            ipujob().with_spec(workers={"replicas": 1}),
            "spec.workers.template",
            ["is required", "pod template"],
        ),
        (
            ipujob().with_spec(workers={"template": {"spec": {"containers": []}}}),
            "spec.workers.template.spec.containers",
            ["at least one container"],
        ),
        (
            ipujob().with_spec(workers={"template": {"spec": {"containers": [{"name": "a"}]}}}),
            "spec.workers.template.spec.containers[0].image",
            ["is required"],
        ),
        (ipujob().workers(0), "spec.workers.replicas", ["use 1 or more"]),
        (ipujob().workers(5000), "spec.workers.replicas", ["5000 workers", "the limit is 1000"]),
        (ipujob().workers(1001), "spec.workers.replicas", ["1001 workers"]),
        (
            ipujob().without_launcher().instances(11).workers(100),
            "spec.workers.replicas",
            ["1100 workers", "the limit is 1000"],
        ),
        (
            ipujob().without_launcher().instances(11).with_spec(workersPerJobInstance="100"),
            "spec.workers.replicas",
            ["1100 workers"],
        ),
        (
            ipujob().with_spec(modelReplicasPerWorker="0"),
            "spec.modelReplicasPerWorker",
            ["use 1 or more"],
        ),
        (ipujob().with_spec(modelReplicas="0"), "spec.modelReplicas", ["use 1 or more"]),
        (ipujob().with_template(containers=[{"image": "a"}]), f"{CONTAINER}.name", ["is required"]),
        (
            ipujob().with_template(containers=[{"name": "a", "image": ""}]),
            f"{CONTAINER}.image",
            ["is required"],
        ),
        (ipujob().with_spec(launcher={}), "spec.launcher.command", ["list of strings"]),
        (
            ipujob().with_spec(launcher={"command": []}),
            "spec.launcher.command",
            ["list of strings"],
        ),
        (
            ipujob().with_spec(launcher={"command": ["mpirun", 2]}),
            "spec.launcher.command",
            ["list of strings"],
        ),
        (ipujob().instances(2), "spec.jobInstances", ["must be 1", "launcher"]),
        (
            ipujob().interactive().instances(2),
            "spec.jobInstances",
            ["must be 1 for an interactive job"],
        ),
        (
            ipujob().with_spec(interactive={"ttl": 60}),
            "spec.launcher",
            ["interactive job has no command"],
        ),
        (
            ipujob().without_launcher().with_spec(interactive={}),
            "spec.interactive.ttl",
            ["is required: set a whole number of seconds, at least 1"],
        ),
        (ipujob().interactive(0), "spec.interactive.ttl", ["use 1 or more (seconds)"]),
        (
            ipujob().without_launcher().with_spec(interactive={"ttl": "2h"}),
            "spec.interactive.ttl",
            ['"2h" is not a whole number: use a whole number of seconds, at least 1'],
        ),
        (
            ipujob().with_spec(cleanPodPolicy="Some"),
            "spec.cleanPodPolicy",
            ["None, Workers, All"],
        ),
        (
            ipujob().with_spec(restartPolicy={"type": "Sometimes"}),
            "spec.restartPolicy.type",
            ["Never, OnFailure, Always, ExitCode"],
        ),
        (
            ipujob().with_spec(restartPolicy={"exitCodes": "1;2"}),
            "spec.restartPolicy.exitCodes",
            ["1,5,10-127"],
        ),
        (
            ipujob().with_spec(restartPolicy={"exitCodes": "9-1"}),
            "spec.restartPolicy.exitCodes",
            ["9-1 is not a range"],
        ),
        (
            ipujob().with_spec(restartPolicy={"exitCodes": "1,250-256"}),
            "spec.restartPolicy.exitCodes",
            ["250-256 is not a range", "0 to 255"],
        ),
        (
            ipujob().with_spec(ttlSecondsAfterFinished=-1),
            "spec.ttlSecondsAfterFinished",
            ["use 0 or more"],
        ),
        (
            ipujob().with_spec(restartPolicy={"backOffLimit": -1}),
            "spec.restartPolicy.backOffLimit",
            ["use 0 or more"],
        ),
        (
            ipujob().with_spec(activeDeadlineSeconds=0),
            "spec.activeDeadlineSeconds",
            ["use 1 or more"],
        ),
    ],
)
def test_a_refusal_names_the_field_and_what_to_write(
    job: IPUJobBuilder, want_field: str, want_words: list[str]
) -> None:
    found = judge(job)
    assert want_field in found, found
    for words in want_words:
        assert words in found[want_field]


def test_all_problems_are_named_at_once() -> None:
    job = ipujob("a" * 70).ipus(3).workers(0).with_spec(cleanPodPolicy="x")
    assert len(judge(job)) == 4


@pytest.mark.parametrize(
    "spec", [None, {}, [], "x", 3, {"workers": []}, {"launcher": "x"}, {"restartPolicy": 1}]
)
def test_no_shape_of_spec_breaks_the_judge(spec: Any) -> None:
    assert problems("name", spec)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (4, 4),
        ("4", 4),
        (" 4 ", 4),
        (4.0, 4),
        (True, None),
        ("4.5", None),
        ("", None),
        (None, None),
        ("-2", -2),
        ("9" * 30, None),
        ({}, None),
    ],
)
def test_numbers_may_be_written_as_text(value: Any, want: int | None) -> None:
    assert whole_number(value) == want


def test_the_defaults_are_those_of_seed_001() -> None:
    filled = with_defaults(ipujob().spec)
    assert filled["cleanPodPolicy"] == "None"
    assert filled["restartPolicy"] == {"type": "Never", "backOffLimit": 3}


def test_defaulting_twice_changes_nothing_and_keeps_what_is_written() -> None:
    once = with_defaults({"restartPolicy": {"type": "Always"}, "workers": {"template": TEMPLATE}})
    assert with_defaults(once) == once
    assert once["restartPolicy"] == {"type": "Always", "backOffLimit": 3}


def test_both_shapes_mean_the_same() -> None:
    alpha, current = parse_spec(ipujob().spec), parse_spec(ipujob().current_shape().spec)
    assert (alpha.partition_size, alpha.instances, alpha.workers_per_instance) == (4, 1, 1)
    assert (current.partition_size, current.instances, current.workers_per_instance) == (4, 1, 1)


def test_workers_per_instance_wins_over_replicas() -> None:
    spec = parse_spec(ipujob().current_shape().with_spec(workersPerJobInstance="3").spec)
    assert spec.total_workers == 3


@pytest.mark.parametrize(
    ("job", "want"),
    [
        (ipujob().with_spec(modelReplicasPerWorker="7"), 7),
        (ipujob().with_spec(modelReplicas="4").workers(3), 2),
        (ipujob().current_shape().workers(2), 1),
    ],
)
def test_slots(job: IPUJobBuilder, want: int) -> None:
    assert parse_spec(job.spec).slots == want
