"""What the webhooks' /metrics says, and who may read it without an API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from devcluster.security.certificates import Authority
from ipuhub.process.process import EVERY_PROCESS
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH, WEBHOOKS
from tests.builders.ipujobs import ipujob
from tests.fakes.freeport import free_port
from tests.fakes.promtool import complaints, families
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANAGE = Path(__file__).resolve().parents[3] / "manage.py"


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
async def webhooks(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """The process, without any API server; gives the addresses of its reviews and its pages."""
    issued = Authority(tmp_path / "ca").issue("webhooks", (), ("127.0.0.1",))
    (tmp_path / "tls.crt").write_bytes(issued.certificate)
    (tmp_path / "tls.key").write_bytes(issued.key)
    port, health = (free_port() for _ in range(2))
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "",
        "KUBECONFIG": str(tmp_path / "nowhere"),
        "IPUHUB_WEBHOOK_PORT": str(port),
        "IPUHUB_WEBHOOK_CERTIFICATE_PATH": str(tmp_path / "tls.crt"),
        "IPUHUB_WEBHOOK_KEY_PATH": str(tmp_path / "tls.key"),
        "IPUHUB_HEALTH_PORT": str(health),
        "IPUHUB_METRICS_TOKEN": "for-the-test",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(MANAGE), "run_webhooks", env=environment
    )
    try:

        async def serves() -> bool:
            assert process.returncode is None
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(serves)
        yield f"https://127.0.0.1:{port}", f"http://127.0.0.1:{health}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 90) == 0


async def test_the_page_counts_reviews_denials_and_the_certificates_days(
    webhooks: tuple[str, str],
) -> None:
    reviews, pages = webhooks
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
