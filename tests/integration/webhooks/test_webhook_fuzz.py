"""Any AdmissionReview gets a well-formed, deliberate response: over 10,000 of them, with integers
of thousands of digits, lone surrogates and the deepest nesting that a JSON parser accepts."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.process.metrics import MOST_SERIES
from jobs.ipujob.podschema import read_pod_template
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH, WEBHOOKS, WebhookRules, respond
from tests.builders.ipujobs import ipujob
from tests.fakes.counted import reset_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

FRESH = ThreadPoolExecutor(1)  # as few frames below a review as in the server
RULES = WebhookRules(template_schema=read_pod_template())
NUMBERS = """
jobInstances modelReplicas ipusPerModelReplica ipusPerJobInstance workersPerJobInstance replicas
modelReplicasPerWorker activeDeadlineSeconds ttlSecondsAfterFinished ttl backOffLimit
"""
WORDS = """
spec metadata name namespace workers template launcher command interactive restartPolicy type
exitCodes containers initContainers securityContext privileged hostPID status annotations labels
finalizers deletionTimestamp ipuhub.io/created-by cleanPodPolicy suspend launcherStatus partitions
state image env
"""
HUGE = (2**63 - 1, 2**63, -(2**64), 10**300, 10**4000, -(10**4000) - 1)
ODD = (
    *HUGE,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    4.0,
    0,
    1,
    "4",
    "9" * 19,
    "9" * 30,
    "--4",
    "-",
)
SURROGATES = ("\ud800", "a\udfff", "\udc80.b", "x" * 300)
DEPTHS = (30, 99, 101, 260, 600, *range(900, 1000, 6), 5000)
_DEEP = re.compile(r'"@(\d+)([ld])@"')


def nested(depth: int, kind: str) -> str:
    """Stands for a value of that depth, which no encoder would write."""
    return f"@{depth}{kind}@"


def written(body: Any) -> bytes:
    """`body` as JSON, with what `nested` stands for."""

    def deep(found: re.Match[str]) -> str:
        depth, (opened, closed) = int(found[1]), ("[", "]")
        if found[2] == "d":
            opened, closed = '{"containers":', "}"
        return opened * depth + "1" + closed * depth

    return _DEEP.sub(deep, json.dumps(body)).encode()


def values() -> st.SearchStrategy[Any]:
    odd = st.sampled_from(ODD) | st.sampled_from(SURROGATES)
    leaf = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats() | odd
    leaf |= st.builds(nested, st.sampled_from(DEPTHS), st.sampled_from("ld"))
    keys = st.sampled_from((*WORDS.split(), *NUMBERS.split()))
    strange = st.text(max_size=4) | st.sampled_from(SURROGATES)
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(keys, inner, max_size=4)
            | st.dictionaries(strange, inner, max_size=2)
        ),
        max_leaves=12,
    )


def numbers() -> st.SearchStrategy[dict[str, Any]]:
    """Numeric fields, several of them beyond anything that is meant."""
    names = st.sampled_from(NUMBERS.split())
    mixed = st.dictionaries(names, st.sampled_from(ODD), max_size=5)
    alike = st.builds(dict.fromkeys, st.sets(names, max_size=8), st.sampled_from(HUGE))
    return mixed | alike


def check(path: str, body: Any) -> None:
    """The answer is an AdmissionReview of JSON that Kubernetes reads."""
    answer = FRESH.submit(respond, path, written(body), RULES).result()
    text = json.dumps(answer, allow_nan=False)
    assert answer["kind"] == "AdmissionReview", text
    response = answer["response"]
    assert response["uid"] == body["request"]["uid"], text  # or it counts as a failed webhook
    assert isinstance(response["allowed"], bool), text
    for operation in json.loads(base64.b64decode(response.get("patch", b"W10="))):
        assert operation["op"] in {"add", "remove"}
        json.dumps(operation, allow_nan=False)
    if not response["allowed"]:
        assert response["status"]["message"], text


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    new=values(),
    old=values(),
    spec=values(),
    figures=numbers(),
    status=st.sampled_from(["", "Running", "Completed"]),
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", "", "\ud800"]),
    subresource=st.sampled_from(["", "scale", "status"]),
)
def test_any_review_gets_a_well_formed_answer(
    new: Any,
    old: Any,
    spec: Any,
    figures: dict[str, Any],
    status: str,
    operation: str,
    subresource: str,
) -> None:
    reset_metrics(WEBHOOKS)
    shaped = ipujob().build()
    shaped["spec"] |= figures | (spec if isinstance(spec, dict) else {"launcher": spec})
    if isinstance(shaped["spec"]["workers"], dict):
        shaped["spec"]["workers"] |= {"replicas": figures.get("replicas", 1)}
    before = ipujob().build() | {"status": {"launcherStatus": status}}
    if isinstance(old, dict):
        before["spec"] |= old
    for made, known in ((new, old), (shaped, old), (shaped, before), (before, shaped)):
        request = {
            "uid": "u-1",
            "operation": operation,
            "subResource": subresource,
            "resource": {"resource": "ipujobs"},
            "userInfo": {"username": "ada"},
            "object": made,
            "oldObject": known,
        }
        for path in (MUTATE_PATH, VALIDATE_PATH):
            check(path, {"request": request})
    page = WEBHOOKS.render().decode()
    assert 'outcome="crashed"' not in page
    assert page.count("ipuhub_webhook_denials_total{") < MOST_SERIES


@given(data=st.binary(max_size=200))
def test_what_is_no_json_gets_a_well_formed_answer(data: bytes) -> None:
    answer = respond(VALIDATE_PATH, data, RULES)
    assert answer["response"]["allowed"] is False


def deep_reviews(kind: str) -> Iterator[tuple[int, str, Any]]:
    """One job made, one left as it is and one edited, nested as deep as JSON can just be read."""
    for depth in (50, 150, 900, *range(960, 990, 5), 5000):
        job = ipujob().build() | {"status": {"launcherStatus": "Running"}}
        job["spec"]["workers"]["template"]["spec"]["odd"] = nested(depth, kind)
        job["spec"]["interactive"] = nested(depth, kind)
        edited = job | {"spec": job["spec"] | {"jobInstances": 2}}
        for operation, new, old in (
            ("CREATE", job, None),
            ("UPDATE", job, job),
            ("UPDATE", edited, job),
        ):
            request = {
                "uid": "u-1",
                "operation": operation,
                "resource": {"resource": "ipujobs"},
                "object": new,
                "oldObject": old,
            }
            yield depth, operation, {"request": request}


@pytest.mark.parametrize("kind", ["l", "d"])
def test_nesting_is_refused_in_words_or_left_alone(kind: str) -> None:
    reset_metrics(WEBHOOKS)
    for depth, operation, body in deep_reviews(kind):
        for path in (MUTATE_PATH, VALIDATE_PATH):
            check(path, body)
        answer = FRESH.submit(respond, VALIDATE_PATH, written(body), RULES).result()["response"]
        if 100 < depth <= 900 and operation == "CREATE":
            causes = answer["status"]["details"]["causes"]
            deep = [one["field"] for one in causes if "deeper than 100 levels" in one["message"]]
            assert deep == ["spec.workers", "spec.interactive"]
    assert 'outcome="crashed"' not in WEBHOOKS.render().decode()
