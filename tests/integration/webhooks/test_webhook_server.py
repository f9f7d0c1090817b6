"""The webhooks over real TLS: renewed certificates; odd numbers and bugs that cause no 5xx."""

from __future__ import annotations

import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from devcluster.security.certificates import Authority
from ipuhub.process.health import Health, build_runner, listening
from jobs.ipujob.podschema import read_pod_template
from jobs.webhooks.server import (
    MUTATE_PATH,
    VALIDATE_PATH,
    WEBHOOKS,
    Certificate,
    WebhookRules,
    build_app,
)
from tests.builders.ipujobs import ipujob
from tests.fakes.counted import reset_metrics
from tests.fakes.leaving import leave_after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SCHEMA = read_pod_template()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def issue(authority: Authority, folder: Path) -> Certificate:
    write(authority, folder)
    return Certificate(folder / "tls.crt", folder / "tls.key")


def write(authority: Authority, folder: Path) -> bytes:
    issued = authority.issue("webhooks", (), ("127.0.0.1",))
    for name, data in (("tls.crt", issued.certificate), ("tls.key", issued.key)):
        fresh = folder / f".{name}"
        fresh.write_bytes(data)
        fresh.replace(folder / name)
    return issued.certificate


@asynccontextmanager
async def serving(certificate: Certificate) -> AsyncIterator[str]:
    runner = web.AppRunner(build_app(WebhookRules(template_schema=SCHEMA)))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate.context)
    await site.start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def trust(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.ca_pem.decode())


async def post(url: str, data: bytes, context: ssl.SSLContext) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=data, ssl=context) as answer,
    ):
        return answer.status, await answer.json()


def review_body(manifest: dict[str, Any]) -> bytes:
    request = {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "graphcore.ai", "version": "v1alpha1", "resource": "ipujobs"},
        "namespace": "default",
        "userInfo": {"username": "ada"},
        "object": manifest,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


async def test_a_review_is_answered_over_tls(tmp_path: Path, authority: Authority) -> None:
    async with serving(issue(authority, tmp_path)) as url:
        status, body = await post(
            url + VALIDATE_PATH, review_body(ipujob().ipus(3).build()), trust(authority)
        )
        assert status == 200
        assert body["response"]["allowed"] is False
        assert "3 IPUs are not a power of two: use 2 or 4" in body["response"]["status"]["message"]
        status, body = await post(
            url + MUTATE_PATH, review_body(ipujob().build()), trust(authority)
        )
        assert body["response"]["patchType"] == "JSONPatch"


async def test_who_leaves_in_the_middle_of_a_review_is_no_failure(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    review = review_body(ipujob().build())
    head = f"POST {VALIDATE_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(review)}\r\n\r\n"
    async with serving(issue(authority, tmp_path)) as url:
        await leave_after(url, head.encode() + review[:30], trust(authority))
        assert (await post(url + VALIDATE_PATH, review, trust(authority)))[0] == 200
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def readiness(certificate: Certificate) -> tuple[int, str]:
    """The answer of `/readyz` of a process that serves this certificate."""
    health = Health()
    health.ask("certificate", lambda: certificate.problem)
    async with (
        listening(build_runner(health.app()), "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}/readyz") as answer,
    ):
        return answer.status, await answer.text()


async def test_an_expired_certificate_is_named_until_another_is_there(
    tmp_path: Path, authority: Authority
) -> None:
    """In one line of the log, and in `/readyz`."""
    now = datetime.now(UTC)
    write(authority, tmp_path)
    certificate = Certificate(tmp_path / "tls.crt", tmp_path / "tls.key", lambda: now)
    certificate.refresh()
    assert certificate.problem == ""
    now += timedelta(days=366)
    with capture_logs() as lines:
        for _ in range(3):
            certificate.refresh()
    assert certificate.problem.startswith("the certificate expired on ")
    (line,) = lines
    assert line["problem"] == certificate.problem
    assert await readiness(certificate) == (503, f"certificate: {certificate.problem}\n")
    now -= timedelta(days=2)
    write(authority, tmp_path)
    assert certificate.refresh()
    assert certificate.problem == ""
    assert await readiness(certificate) == (200, "ok")


async def test_a_renewed_certificate_is_used_without_a_restart(
    tmp_path: Path, authority: Authority
) -> None:
    certificate = issue(authority, tmp_path)
    async with serving(certificate) as url:
        body = review_body(ipujob().build())
        assert (await post(url + VALIDATE_PATH, body, trust(authority)))[0] == 200
        other = Authority(tmp_path / "other-ca")
        write(other, tmp_path)
        assert certificate.refresh()
        assert (await post(url + VALIDATE_PATH, body, trust(other)))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(url + VALIDATE_PATH, body, trust(authority))


async def test_a_broken_renewal_leaves_the_last_good_certificate_and_says_so(
    tmp_path: Path, authority: Authority
) -> None:
    certificate = issue(authority, tmp_path)
    async with serving(certificate) as url:
        (tmp_path / "tls.crt").write_text("half a certificate")
        assert not certificate.refresh()
        assert "not usable" in certificate.problem
        body = review_body(ipujob().build())
        assert (await post(url + VALIDATE_PATH, body, trust(authority)))[0] == 200
        write(authority, tmp_path)
        assert certificate.refresh()
        assert certificate.problem == ""


async def test_numbers_beyond_all_measure_are_refused_and_not_an_error(
    tmp_path: Path, authority: Authority
) -> None:
    job = ipujob().without_launcher().build()
    job["spec"] |= {"jobInstances": 10**4000, "workersPerJobInstance": 10**4000}
    async with serving(issue(authority, tmp_path)) as url:
        status, body = await post(url + VALIDATE_PATH, review_body(job), trust(authority))
    assert status == 200
    causes = body["response"]["status"]["details"]["causes"]
    assert {cause["field"]: cause["message"] for cause in causes} == {
        f"spec.{field}": "a number of more than 64 bits is not a whole number: "
        "use a whole number of at least 1"
        for field in ("jobInstances", "workersPerJobInstance")
    }


async def test_a_review_that_the_webhook_fails_at_is_refused_in_words_and_counted(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("jobs.webhooks.server.judge", fail)
    reset_metrics(WEBHOOKS)
    async with serving(issue(authority, tmp_path)) as url:
        sent = review_body(ipujob().build())
        status, body = await post(url + VALIDATE_PATH, sent, trust(authority))
    assert (status, body["response"]["uid"]) == (200, "u-1")
    assert body["response"]["allowed"] is False
    assert "nothing was stored" in body["response"]["status"]["message"]
    labels = 'operation="CREATE",outcome="crashed",webhook="validate"'
    assert f"ipuhub_webhook_reviews_total{{{labels}}} 1" in WEBHOOKS.render().decode()
