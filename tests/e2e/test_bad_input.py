"""Mistakes of a researcher: a sentence that says what to write instead, then a fixed spec runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.running_demo import EXAMPLES
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.running_demo import RunningDemo


def sample(name: str, **spec: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / "single-gcd-sample.yaml").read_text())
    manifest["metadata"] = {"name": name}
    manifest["spec"].update(spec)
    manifest["spec"] = {key: value for key, value in manifest["spec"].items() if value is not None}
    return manifest


def test_an_unknown_field_is_refused_by_kubectl_apply(demo: RunningDemo) -> None:
    manifest = sample("typo", modelReplica="4")
    done = demo.try_kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    assert done.returncode != 0
    assert 'unknown field "spec.modelReplica"' in done.stderr
    assert "Traceback" not in done.stderr
    assert demo.kubectl("get", "ipujobs", "-o", "name") == ""


def test_an_unknown_field_of_the_pod_template_is_kept(demo: RunningDemo) -> None:
    manifest = sample("newer")
    manifest["spec"]["workers"]["template"]["spec"]["fieldOfTomorrow"] = {"a": 1}
    demo.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    assert demo.job("newer")["spec"]["workers"]["template"]["spec"]["fieldOfTomorrow"] == {"a": 1}


@pytest.fixture
def no_webhooks(demo: RunningDemo) -> Iterator[None]:
    """The API server calls no webhook, as where none is installed."""
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    kept = json.loads(demo.kubectl("get", kinds, "-o", "json"))
    for item in kept["items"]:
        item["metadata"] = {"name": item["metadata"]["name"]}
    demo.kubectl("delete", kinds, "--all")
    yield
    demo.kubectl("create", "-f", "-", stdin=json.dumps(kept))


MISTAKES = [
    ("no-power-of-two", {"modelReplicas": "6"}, ("modelReplicas", "8")),
    ("too-many", {"modelReplicas": "128"}, ("128", "64")),
    ("no-template", {"workers": {"replicas": 1}}, ("spec.workers.template",)),
    ("mixed", {"jobInstances": 1, "ipusPerJobInstance": "4"}, ("ipusPerJobInstance",)),
    ("no-number", {"modelReplicas": "four"}, ("modelReplicas", "four")),
]


@pytest.mark.parametrize(("case", "spec", "says"), MISTAKES)
def test_a_spec_that_makes_no_sense_is_refused_and_runs_when_fixed(
    demo: RunningDemo, case: str, spec: dict[str, Any], says: tuple[str, ...]
) -> None:
    done = demo.try_kubectl("apply", "-f", "-", stdin=json.dumps(sample(case, **spec)))
    assert done.returncode != 0
    assert f'The IPUJob "{case}" is invalid: ' in done.stderr
    for part in says:
        assert part in done.stderr
    assert demo.kubectl("get", "ipujobs", "-o", "name") == ""
    demo.kubectl("apply", "-f", "-", stdin=json.dumps(sample(case)))
    wait_until(lambda: demo.status(case) == "Running", "Running after the fix")


@pytest.mark.usefixtures("no_webhooks")
@pytest.mark.parametrize(("case", "spec", "says"), MISTAKES[:1] + MISTAKES[3:4])
def test_without_webhooks_the_job_says_what_to_write_and_then_runs_when_fixed(
    demo: RunningDemo, case: str, spec: dict[str, Any], says: tuple[str, ...]
) -> None:
    demo.kubectl("apply", "-f", "-", stdin=json.dumps(sample(case, **spec)))

    def pending() -> dict[str, Any] | None:
        conditions = demo.job(case).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["reason"] == "InvalidSpec"), None)

    wait_until(pending, "InvalidSpec")
    message = (pending() or {})["message"]
    for part in says:
        assert part in message
    assert demo.status(case) == "Pending"
    assert demo.job(case)["status"]["lastMessage"] == message
    assert demo.stats()["total"]["used"] == 0

    fixed = sample(case)
    if case == "mixed":
        patch = json.dumps({"spec": {"jobInstances": None, "ipusPerJobInstance": None}})
        demo.kubectl("patch", "ipujob", case, "--type=merge", "-p", patch)
    else:
        demo.kubectl("apply", "-f", "-", stdin=json.dumps(fixed))
    wait_until(lambda: demo.status(case) == "Running", "Running after the fix")


def test_a_name_too_long_for_its_pods_is_refused(demo: RunningDemo) -> None:
    done = demo.try_kubectl("apply", "-f", "-", stdin=json.dumps(sample("a" * 64)))
    assert done.returncode != 0
    assert "63" in done.stderr


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "application/json"),
        (b"two", "application/json"),
        (b'{"size": 0}', "application/json"),
        (b'{"size": -2}', "application/json"),
        (b'{"size": "2"}', "application/json"),
        (b'{"size": 2}', "text/plain"),
        (b"[]", "application/json"),
    ],
)
def test_query_answers_nonsense_with_400_and_json(
    demo: RunningDemo, body: bytes, content_type: str
) -> None:
    status, text = demo.http("/query", body, Content_Type=content_type)
    assert status == 400
    answer = json.loads(text)
    assert len(answer["detail"].split()) > 3, answer  # a sentence


def test_query_for_an_impossible_size_says_so_and_counts_none(demo: RunningDemo) -> None:
    for size in (3, 128):
        answer = json.loads(demo.query(size))
        assert answer["numOfPartitions"] == 0
        assert answer["message"]


def test_v1_needs_a_token(demo: RunningDemo) -> None:
    assert demo.http("/v1/partitions")[0] == 401
    assert demo.http("/v1/partitions", Authorization="Bearer nonsense")[0] == 401


def test_a_token_for_another_audience_is_refused(demo: RunningDemo) -> None:
    account = ("ipuhub-operator", "-n", "ipuhub-system")
    default = demo.kubectl("create", "token", *account).strip()
    assert demo.http("/v1/partitions", Authorization=f"Bearer {default}")[0] == 401
    right = demo.kubectl("create", "token", *account, "--audience=ipuhub-proxy").strip()
    assert demo.http("/v1/partitions", Authorization=f"Bearer {right}")[0] == 200


def test_an_account_without_the_right_is_refused(demo: RunningDemo) -> None:
    token = demo.kubectl("create", "token", "default", "--audience=ipuhub-proxy").strip()
    assert demo.http("/v1/partitions", Authorization=f"Bearer {token}")[0] == 403
