"""A real Prometheus scrapes an operator through a bound metrics-reader role."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.process.process import EVERY_PROCESS, WITH_API, WITH_LEASE, WITH_WATCHES
from jobs.ipujob.names import IPUJOBS
from jobs.operator.metrics import OPERATOR
from tests.builders.ipujobs import ipujob
from tests.fakes.freeport import free_port
from tests.fakes.prometheus import ask, get, process, prometheus
from tests.fakes.promtool import complaints, families
from tests.fakes.waiting import eventually
from tests.integration.metrics.conftest import SYSTEM, scrape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.metrics.conftest import Accounts

pytestmark = pytest.mark.embedded_only
MANAGE = Path(__file__).resolve().parents[3] / "manage.py"


@asynccontextmanager
async def operator(accounts: Accounts) -> AsyncIterator[str]:
    """An operator under its own account; gives the address of its pages."""
    port = free_port()
    environment = {
        "DJANGO_SETTINGS_MODULE": "",
        "KUBECONFIG": str(await accounts.kubeconfig("ipuhub-operator")),
        "IPUHUB_HEALTH_PORT": str(port),
    }
    async with process(
        accounts.folder, sys.executable, str(MANAGE), "run_operator", **environment
    ) as running:

        async def leads() -> bool:
            assert running.returncode is None
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
            found = await accounts.client.request("GET", lease)
            return any(item["spec"]["holderIdentity"] for item in found["items"])

        await eventually(leads)
        yield f"127.0.0.1:{port}"


@asynccontextmanager
async def scraping(accounts: Accounts, target: str) -> AsyncIterator[str]:
    """A Prometheus that scrapes the target as `reader`, as `stranger` and without a token; its
    address."""
    place = [{"targets": [target]}]
    jobs: list[dict[str, Any]] = [
        {
            "job_name": name,
            "authorization": {"credentials_file": str(path)},
            "static_configs": place,
        }
        for name, path in accounts.tokens.items()
    ]
    nobody = {"job_name": "nobody", "static_configs": place}
    async with prometheus(accounts.folder, [*jobs, nobody]) as address:
        yield address


async def test_prometheus_reads_what_the_role_allows_and_nobody_else_does(
    accounts: Accounts,
) -> None:
    async with operator(accounts) as target, scraping(accounts, target) as address:

        async def errors() -> dict[str, str]:
            found = json.loads(await get(f"{address}/api/v1/targets") or '{"data": {}}')
            active = found["data"].get("activeTargets", ())
            return {
                one["labels"]["job"]: one["lastError"]
                for one in active
                if one["lastScrape"][:4] != "0001"
            }

        def are_as_their_roles(seen: dict[str, str]) -> bool:
            # A scrape may come too early, or take longer than Prometheus waits.
            texts = (seen.get("reader", "?"), seen.get("nobody", ""), seen.get("stranger", ""))
            return (texts[0], "401" in texts[1], "403" in texts[2]) == ("", True, True)

        await eventually(errors, are_as_their_roles)

        body = ipujob("waits").build()
        manifest = {**body, "metadata": {"name": "waits", "namespace": "default"}}
        await accounts.client.create(IPUJOBS, manifest)

        async def answered() -> bool:
            jobs = await ask(address, 'ipuhub_jobs{state="Pending"}')
            reasons = await ask(address, 'ipuhub_jobs_pending{reason="ProxyUnavailable"}')
            return jobs == {("reader", "Pending"): 1.0} and list(reasons.values()) == [1.0]

        await eventually(answered)

        async def shows(query: str, *labels: str) -> float:
            """The one value; between two scrapes of which a single one has failed there may be
            none."""
            (value,) = (await eventually(lambda: ask(address, query))).items()
            assert value[0] == labels
            return float(value[1])

        assert await shows("sum(ipuhub_leader)") == 1
        assert await shows('ipuhub_ready{check="proxy"}', "proxy", "reader") == 0
        assert await shows("sum(ipuhub_operator_pass_duration_seconds_count)") > 0
        writes = 'sum(ipuhub_operator_action_duration_seconds_count{action="PatchStatus"})'
        assert await shows(writes) >= 1
        await shows("max(ipuhub_watch_age_seconds) < 90")


async def test_the_operators_page_is_clean_and_has_all_that_is_declared(accounts: Accounts) -> None:
    async with operator(accounts) as target:
        status, text, headers = await scrape(f"http://{target}/metrics", accounts.token("reader"))
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert complaints(text) == ""
        tables = (*EVERY_PROCESS, *WITH_LEASE, *WITH_API, *WITH_WATCHES, *OPERATOR)
        assert {metric.name for metric in tables} <= families(text)


async def test_who_may_not_is_told_what_to_do(accounts: Accounts) -> None:
    async with operator(accounts) as target:
        url = f"http://{target}/metrics"
        status, text, headers = await scrape(url)
        assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="ipuhub"')
        assert b"nonResourceURLs" in text
        assert (await scrape(url, "nonsense"))[0] == 401
        status, text, _ = await scrape(url, accounts.token("stranger"))
        assert status == 403
        assert b"system:serviceaccount:monitoring:stranger may not get the URL /metrics" in text
        for page in ("/healthz", "/readyz"):
            assert (await scrape(f"http://{target}{page}"))[0] in {200, 503}  # open to all
        await accounts.cluster.stop()
        status, text, headers = await scrape(url, "another")
        assert (status, headers["Retry-After"]) == (503, "5")
