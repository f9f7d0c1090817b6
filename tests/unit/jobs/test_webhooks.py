"""Changes, rejections and warnings of the admission webhooks."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.storage.patch import json_patch
from jobs.ipujob.fields import FIELDS
from jobs.ipujob.names import ANNOTATION_CREATED_BY, FINALIZER
from jobs.ipujob.podschema import read_pod_template
from jobs.ipujob.privileges import Privileges
from jobs.webhooks.mutating import operations, warnings_of
from jobs.webhooks.review import BadReviewError, Review, patched, read_review, refused
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH, WebhookRules, respond
from jobs.webhooks.validating import judge
from tests.builders.ipujobs import ipujob
from tests.unit.jobs.test_crd import nodes, schema

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder

SCHEMA = read_pod_template()


def review(
    new: dict[str, Any], old: dict[str, Any] | None = None, user: str = "ada", **fields: Any
) -> Review:
    operation = fields.pop("operation", "CREATE" if old is None else "UPDATE")
    return Review("u-1", operation, "ipujobs", "", "default", user, new, old or {}, **fields)


def mutated(new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    result: dict[str, Any] = json_patch(new, operations(review(new, old)))
    return result


def test_creating_stamps_finalizer_author_and_defaults() -> None:
    job = mutated(ipujob().without_finalizer().build())
    assert job["metadata"]["finalizers"] == [FINALIZER]
    assert "/" in FINALIZER  # or the API server warns whoever applies a job
    assert job["metadata"]["annotations"] == {ANNOTATION_CREATED_BY: "ada"}
    assert job["spec"]["cleanPodPolicy"] == "None"
    assert job["spec"]["restartPolicy"] == {"type": "Never", "backOffLimit": 3}


def test_nobody_claims_to_be_somebody_else() -> None:
    forged = ipujob().annotated(**{ANNOTATION_CREATED_BY: "root"}).build()
    assert mutated(forged)["metadata"]["annotations"][ANNOTATION_CREATED_BY] == "ada"
    stored = ipujob().annotated(**{ANNOTATION_CREATED_BY: "ada", "x": "y"}).build()
    edited = ipujob().annotated(**{ANNOTATION_CREATED_BY: "eve", "x": "z"}).build()
    assert mutated(edited, stored)["metadata"]["annotations"] == {
        ANNOTATION_CREATED_BY: "ada",
        "x": "z",
    }
    bare = ipujob().build()
    assert mutated(bare, stored)["metadata"]["annotations"] == {ANNOTATION_CREATED_BY: "ada"}
    assert ANNOTATION_CREATED_BY not in mutated(edited, ipujob().build())["metadata"]["annotations"]


def test_applying_it_twice_changes_nothing_more() -> None:
    once = mutated(ipujob().without_finalizer().current_shape().build())
    assert operations(review(once)) == []
    assert once["spec"]["jobInstances"] == 1


def test_an_object_being_deleted_gets_no_finalizer() -> None:
    going = ipujob().without_finalizer().deleted().build()
    assert "finalizers" not in mutated(going)["metadata"]
    stored = ipujob().deleted().build()
    assert operations(review(ipujob().without_finalizer().deleted().build(), stored)) == []


def test_only_creating_brings_the_finalizer_and_subresources_bring_nothing() -> None:
    bare = ipujob().without_finalizer().build()
    assert "finalizers" not in mutated(bare, ipujob().build())["metadata"]
    scale_review = replace(review(bare, ipujob().build()), subresource="status")
    assert operations(scale_review) == []
    assert operations(replace(review(bare), operation="DELETE")) == []


def test_a_null_where_a_default_belongs_is_filled() -> None:
    job = ipujob().with_spec(cleanPodPolicy=None).build()
    assert mutated(job)["spec"]["cleanPodPolicy"] == "None"


def fields_of(new: dict[str, Any], old: dict[str, Any] | None = None, **who: Any) -> list[str]:
    return [problem.field for problem in judge(review(new, old), Privileges(**who))]


def test_all_problems_come_at_once_with_their_paths() -> None:
    job = ipujob().ipus(3).with_spec(cleanPodPolicy="Some")
    job.spec["workers"].pop("template")
    assert fields_of(job.build()) == [
        "spec.ipusPerJobInstance",
        "spec.workers.template",
        "spec.cleanPodPolicy",
    ]


def test_a_job_without_a_spec_is_refused() -> None:
    job = ipujob().build()
    del job["spec"]
    assert fields_of(job) == ["spec"]


def test_a_stored_job_that_breaks_a_rule_keeps_its_way_out() -> None:
    invalid = ipujob().ipus(3)
    assert fields_of(invalid.without_finalizer().build(), ipujob().ipus(3).build()) == []
    assert fields_of(ipujob().ipus(5).deleted().build(), ipujob().ipus(3).build()) == []
    assert fields_of(ipujob().ipus(5).build(), ipujob().ipus(3).build()) == [
        "spec.ipusPerJobInstance"
    ]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"suspend": True}, []),
        ({"activeDeadlineSeconds": 60}, []),
        ({"ttlSecondsAfterFinished": 60}, []),
        ({"cleanPodPolicy": "All"}, []),
        ({"keepPartition": True}, []),
        ({"restartPolicy": {"type": "Always", "backOffLimit": 9}}, []),
        ({"modelReplicas": "8"}, ["spec.modelReplicas"]),
        ({"launcher": {"command": ["true"]}}, ["spec.launcher"]),
        ({"modelReplicasPerWorker": "2"}, ["spec.modelReplicasPerWorker"]),
        ({"workers": ipujob().workers(2).spec["workers"]}, ["spec.workers"]),
        ({"workersPerJobInstance": None, "launcher": None}, ["spec.launcher"]),
    ],
)
def test_what_may_be_edited_while_a_job_runs(change: dict[str, Any], want: list[str]) -> None:
    old = ipujob().running()
    assert fields_of(ipujob().running().with_spec(**change).build(), old.build()) == want


def test_a_waiting_or_suspended_job_may_change_as_a_whole_and_a_finished_one_hardly() -> None:
    bigger = ipujob().ipus(8).build()
    assert fields_of(bigger, ipujob().ipus(4).with_status(launcherStatus="Pending").build()) == []
    held = [{"instance": 0, "id": "p", "state": "active"}]
    old = ipujob().ipus(4).with_status(launcherStatus="Pending", partitions=held)
    assert fields_of(bigger, old.build()) == ["spec.ipusPerJobInstance"]
    old = ipujob().ipus(4).with_status(launcherStatus="Suspended", partitions=held)
    assert fields_of(bigger, old.build()) == []
    old = ipujob().ipus(4).finished()
    assert fields_of(ipujob().ipus(4).with_spec(suspend=True).build(), old.build()) == [
        "spec.suspend"
    ]
    for change in (
        {"ttlSecondsAfterFinished": 1},
        {"cleanPodPolicy": "All"},
        {"keepPartition": True},
    ):
        assert fields_of(ipujob().ipus(4).with_spec(**change).build(), old.build()) == []
    restart = ipujob().ipus(4).with_spec(restartPolicy={"type": "Always"})
    assert fields_of(restart.build(), old.build()) == ["spec.restartPolicy"]


def test_a_running_job_may_be_scaled() -> None:
    old, new = (ipujob().without_launcher().instances(n).running().build() for n in (2, 3))
    assert fields_of(new, old) == []


def test_a_default_that_is_filled_in_is_no_change() -> None:
    old = ipujob().current_shape().finished().build()
    old["spec"].pop("jobInstances")
    new = mutated(ipujob().current_shape().with_spec(ttlSecondsAfterFinished=60).build())
    assert new["spec"]["restartPolicy"]
    assert fields_of(new, old) == []


NUMBERS = [
    path
    for path, node in nodes(schema()["properties"]["spec"])
    if not path.startswith((".workers.template", ".workers.strategy", ".launcher.env"))
    and (node.get("x-kubernetes-int-or-string") or node.get("type") == "integer")
]


@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_written_in_another_way_is_no_change(path: str) -> None:
    assert ".workers.replicas" in NUMBERS
    outer, _, inner = path.removeprefix(".").partition(".")

    def with_number(number: object) -> dict[str, Any]:
        job = ipujob().finished().build()
        if inner:
            job["spec"][outer] = {**job["spec"].get(outer, {}), inner: number}
        else:
            job["spec"][outer] = number
        return job

    def changed(old: object, new: object) -> list[str]:
        problems = judge(review(with_number(new), with_number(old)), Privileges())
        return [p.field for p in problems if "cannot change" in p.message]

    for old, new in (("4", 4), (4, "4"), ("04", 4), (4, 4.0)):
        assert changed(old, new) == []
    is_free = outer in FIELDS.when_finished
    assert changed("4", 5) == ([] if is_free else [f"spec.{outer}"])


def test_a_state_that_is_no_text_is_none() -> None:
    old = ipujob().with_status(launcherStatus=[]).build()
    assert fields_of(ipujob().with_spec(suspend=True).build(), old) == []


def test_only_the_ttl_of_a_running_session_may_change() -> None:
    old = ipujob().interactive(600).running().build()
    assert fields_of(ipujob().interactive(1200).build(), old) == []
    plain = ipujob().without_launcher().running().build()
    assert fields_of(plain, old) == ["spec.interactive"]
    assert fields_of(ipujob().interactive(600).build(), plain) == ["spec.interactive"]


@pytest.mark.parametrize(
    ("old", "want"),
    [
        (ipujob().running(), "suspend the job first"),
        (ipujob().with_status(launcherStatus="Restarting"), "suspend the job first"),
        (ipujob().finished(), "create a new job"),
    ],
)
def test_who_may_not_edit_is_told_what_to_do(old: IPUJobBuilder, want: str) -> None:
    new = {**old.build(), "spec": {**old.spec, "modelReplicas": "8"}}
    (problem,) = judge(review(new, old.build()), Privileges())
    assert problem.message.endswith(f"{want} (suspend: true), or create a new job") or (
        problem.message.endswith(f": {want}")
    )


def privileged() -> IPUJobBuilder:
    container = {"name": "main", "image": "a", "securityContext": {"privileged": True}}
    return ipujob().with_template(containers=[container], hostNetwork=True, hostPID=True)


def test_privileges_are_refused_by_profile() -> None:
    base = "spec.workers.template.spec"
    want = [f"{base}.hostPID", f"{base}.containers[0].securityContext.privileged"]
    assert fields_of(privileged().build()) == want
    assert fields_of(privileged().build(), host_network=False) == [f"{base}.hostNetwork", *want]
    assert fields_of(privileged().build(), profile="baseline") == [f"{base}.hostNetwork", *want]
    assert fields_of(privileged().build(), profile="privileged") == []


ODD_METADATA: dict[str, Any] = {
    "metadata": "text",
    "metadata.labels": ["a"],
    "metadata.annotations": 7,
    "metadata.finalizers": {"a": "b"},
}


@pytest.mark.parametrize("where", ODD_METADATA)
@pytest.mark.parametrize("path", [MUTATE_PATH, VALIDATE_PATH])
@pytest.mark.parametrize("part", ["object", "oldObject"])
def test_metadata_of_a_wrong_type_is_refused_with_the_requests_uid(
    path: str, part: str, where: str
) -> None:
    job = ipujob().build()
    target = job if where == "metadata" else job["metadata"]
    target[where.rpartition(".")[2]] = ODD_METADATA[where]
    request = {"uid": "u-7", "operation": "UPDATE", "object": ipujob().build(), part: job}
    answer = respond(path, json.dumps({"request": request}).encode(), WebhookRules())["response"]
    assert (answer["uid"], answer["allowed"]) == ("u-7", False)
    assert answer["status"]["code"] == 400
    assert f"request.{part}.{where} is not a" in answer["status"]["message"]


@pytest.mark.parametrize(
    "rest", ["", "}}}", ', "object": ' + "[" * 5000, ', "a": "\x00', ', "n": 01}}']
)
def test_what_is_not_readable_as_a_whole_is_refused_with_the_requests_uid(rest: str) -> None:
    head = '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-8"'
    answer = respond(VALIDATE_PATH, (head + rest).encode(), WebhookRules())["response"]
    assert (answer["uid"], answer["allowed"], answer["status"]["code"]) == ("u-8", False, 400)


def scale(new: int, old: int) -> Review:
    was, wanted = {"spec": {"replicas": old}}, {"spec": {"replicas": new}}
    return Review("u", "UPDATE", "ipujobs", "scale", "default", "ada", wanted, was)


def test_scaling_is_for_jobs_with_instances() -> None:
    assert judge(scale(3, 1), Privileges()) == []
    (problem,) = judge(scale(3, 0), Privileges())
    assert "ipusPerJobInstance" in problem.message
    (problem,) = judge(scale(0, 2), Privileges())
    assert "suspend" in problem.message


def with_template_metadata(**fields: Any) -> IPUJobBuilder:
    job = ipujob()
    job.spec["workers"]["template"]["metadata"] = fields
    return job


@pytest.mark.parametrize(
    ("job", "want"),
    [
        (ipujob(), []),
        (ipujob().workers(2).with_spec(launcher={"command": ["mpirun", "-np", "2", "x"]}), []),
        (ipujob().with_spec(launcher={"command": ["mpirun", "-np", "4", "x"]}), []),
        (
            ipujob()
            .workers(2)
            .with_spec(
                launcher={
                    "command": ["mpirun", "--mca", "btl_tcp_if_include", "x", "-np", "4", "y"]
                }
            ),
            [],
        ),
        (
            ipujob().with_spec(launcher={"command": ["sh", "-c", "mpirun -np 5 x"]}),
            ["5 processes exceed the 4 slots"],
        ),
        (
            ipujob().with_spec(launcher={"command": ["mpirun", "-n", "1", "a", ":", "-c", "9"]}),
            ["9 processes exceed the 4 slots"],
        ),
        (
            ipujob().with_spec(launcher={"command": ["mpirun", "--np", "7", "x"]}),
            ["7 processes exceed the 4 slots"],
        ),
        (ipujob().workers(2).with_spec(launcher={"command": ["serve", "-n", "99"]}), []),
        (
            ipujob().with_template(**{f"odd{n:02}": 1 for n in range(10)}),
            [f"odd{n:02}" for n in range(10)],
        ),
        (
            ipujob().with_template(**{f"odd{n:02}": 1 for n in range(12)}),
            [*(f"odd{n:02}" for n in range(10)), "2 more unknown fields"],
        ),
        (ipujob().with_template(contaners=[]), ["spec.workers.template.spec.contaners"]),
        (with_template_metadata(creationTimestamp=None), []),  # as generated manifests have it
    ],
)
def test_what_is_legal_and_probably_not_meant_is_a_warning(
    job: IPUJobBuilder, want: list[str]
) -> None:
    found = warnings_of(job.build()["spec"], SCHEMA)
    assert len(found) == len(want)
    assert all(word in sentence for word, sentence in zip(want, found, strict=True))


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"request": 1},
        {"request": {"object": 1}},
        {"request": {"object": {"metadata": 1}}},
        {"request": {"object": {"metadata": {"annotations": [1]}}}},
        {"request": {"object": {"metadata": {"finalizers": "x"}}}},
    ],
)
def test_what_is_no_review_is_said_to_be_none(body: Any) -> None:
    with pytest.raises(BadReviewError):
        read_review(body)


def test_the_answers_are_admission_reviews() -> None:
    answer = patched("u-1", [{"op": "remove", "path": "/x"}])
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    text = base64.b64decode(answer["response"]["patch"])
    assert json.loads(text) == [{"op": "remove", "path": "/x"}]
    assert "patchType" not in patched("u-1", [])["response"]
    creation = review(ipujob().ipus(3).build(), name="three")
    answer = refused(creation, judge(creation, Privileges()))
    assert answer["response"]["uid"] == "u-1"
    status = answer["response"]["status"]
    assert status["details"]["name"] == "three"  # kubectl prints it
    assert status["code"] == 422
    assert status["details"]["causes"][0]["field"] == "spec.ipusPerJobInstance"
