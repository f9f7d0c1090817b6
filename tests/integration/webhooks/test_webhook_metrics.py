"""The webhooks' /metrics, and its access rules without an API server."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from ipuhub.process.process import EVERY_PROCESS
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH, WEBHOOKS
from tests.builders.ipujobs import ipujob
from tests.fakes.promtool import complaints, families
from tests.fakes.webhookprocess import running_webhooks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fakes.webhookprocess import WebhookProcess


def review(manifest: dict[str, Any]) -> dict[str, Any]:
    request = {
        "uid": "a-review",
        "operation": "CREATE",
        "resource": {"group": "graphcore.ai", "version": "v1alpha1", "resource": "ipujobs"},
        "userInfo": {"username": "ada"},
        "name": manifest["metadata"]["name"],
        "object": manifest,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@pytest.fixture
async def webhooks(tmp_path: Path) -> AsyncIterator[WebhookProcess]:
    async with running_webhooks(tmp_path, IPUHUB_METRICS_TOKEN="for-the-test") as webhooks:
        yield webhooks


async def test_the_page_counts_reviews_denials_and_the_certificates_days(
    webhooks: WebhookProcess,
) -> None:
    reviews, pages = webhooks.reviews, webhooks.pages
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    good = ipujob("good").build()
    bad = ipujob("bad").build()
    del bad["spec"]["workers"]["template"]["spec"]["containers"][0]["image"]
    bodies = [(MUTATE_PATH, review(good)), (VALIDATE_PATH, review(good))]
    bodies += [(VALIDATE_PATH, review(bad)), (VALIDATE_PATH, review(bad))]
    async with aiohttp.ClientSession() as http:
        for path, body in bodies:
            async with http.post(reviews + path, json=body, ssl=trusting) as answer:
                assert answer.status == 200
        async with http.post(reviews + VALIDATE_PATH, data=b"nonsense", ssl=trusting) as answer:
            assert json.loads(await answer.text())["response"]["allowed"] is False

        async with http.get(f"{pages}/metrics") as answer:
            assert answer.status == 401
        other = {"Authorization": "Bearer other"}
        async with http.get(f"{pages}/metrics", headers=other) as answer:
            assert answer.status == 503
            assert "nowhere does not exist" in await answer.text()
        ours = {"Authorization": "Bearer for-the-test"}
        async with http.get(f"{pages}/metrics", headers=ours) as answer:
            assert answer.status == 200
            text = await answer.text()

    def series(name: str, **labels: str) -> float:
        body = ",".join(f'{key}="{word}"' for key, word in sorted(labels.items()))
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return float(lines[f"{name}{{{body}}}" if body else name])

    total = "ipuhub_webhook_reviews_total"
    assert series(total, webhook="mutate", operation="CREATE", outcome="patched") == 1
    assert series(total, webhook="validate", operation="CREATE", outcome="denied") == 2
    assert series(total, webhook="validate", operation="other", outcome="unreadable") == 1
    field = "spec.workers.template.spec.containers.image"  # of any container
    assert series("ipuhub_webhook_denials_total", field=field) == 2
    assert series("ipuhub_webhook_review_duration_seconds_count", webhook="validate") == 4
    end = series("ipuhub_webhook_certificate_expiry_timestamp_seconds")
    assert end > datetime.now(UTC).timestamp()
    assert {metric.name for metric in (*EVERY_PROCESS, *WEBHOOKS)} <= families(text.encode())
    assert complaints(text.encode()) == ""
