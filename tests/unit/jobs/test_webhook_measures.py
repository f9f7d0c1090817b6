"""The webhooks' counters: posted reviews can neither fill nor break the page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.ipujob.crd import build_crd
from jobs.ipujob.podschema import read_pod_template
from jobs.ipujob.spec import TEMPLATE, known_field
from jobs.webhooks.server import VALIDATE_PATH, WEBHOOKS, WebhookRules, respond
from tests.builders.ipujobs import ipujob
from tests.fakes.counted import reset_metrics

SCHEMA = read_pod_template()
RULES = WebhookRules(template_schema=SCHEMA)


def edit(key: str) -> dict[str, Any]:
    """Return the answer to a user who adds `key` to the spec of a running job."""
    new = ipujob().build()
    old = ipujob().build() | {"status": {"launcherStatus": "Running"}}
    new["spec"][key] = 1
    request = {
        "uid": "u",
        "operation": "UPDATE",
        "resource": {"resource": "ipujobs"},
        "object": new,
        "oldObject": old,
    }
    return respond(VALIDATE_PATH, json.dumps({"request": request}).encode(), RULES)


def page_after(*keys: str) -> list[str]:
    reset_metrics(WEBHOOKS)
    for key in keys:
        assert edit(key)["response"]["allowed"] is False
    return WEBHOOKS.render().decode().splitlines()


def test_fields_that_no_job_has_are_one_series() -> None:
    page = page_after(*(f"key{number}" for number in range(50)), "launcher.x", "workers[0].a")
    denials = [line for line in page if line.startswith("ipuhub_webhook_denials_total{")]
    assert denials == ['ipuhub_webhook_denials_total{field="other"} 52.0']


def test_a_lone_surrogate_in_a_field_leaves_the_page_readable() -> None:
    assert 'ipuhub_webhook_denials_total{field="other"} 1.0' in page_after("\ud800")


def test_known_fields_keep_their_series() -> None:
    page = page_after("ipusPerJobInstance", "modelReplicasPerWorker")
    for field in ("spec.ipusPerJobInstance", "spec.modelReplicasPerWorker"):
        assert any(f'denials_total{{field="{field}"}} ' in line for line in page)


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (f"{TEMPLATE}.spec.containers[3].image", f"{TEMPLATE}.spec.containers.image"),
        (f"{TEMPLATE}.spec.hostPID", f"{TEMPLATE}.spec.hostPID"),
        (f"{TEMPLATE}.spec.hostPIDs", None),
        (f"{TEMPLATE}.", None),
        ("spec.", None),
        ("", None),
        ("spec.replicas", "spec.replicas"),
        ("metadata.name", "metadata.name"),
    ],
)
def test_a_field_is_known_when_the_crd_has_it(path: str, want: str | None) -> None:
    assert known_field(path, SCHEMA) == want


def test_every_field_of_the_crd_is_known() -> None:
    versions = build_crd()["spec"]["versions"]
    root = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for name, part in root["properties"].items():
        assert known_field(f"spec.{name}", SCHEMA)
        for below in part.get("properties") or ():
            assert known_field(f"spec.{name}.{below}", SCHEMA)
    assert known_field(TEMPLATE, SCHEMA)
