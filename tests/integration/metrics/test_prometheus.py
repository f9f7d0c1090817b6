"""A real Prometheus scrapes an operator through a bound metrics-reader role."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import pytest
import yaml

from ipuhub.process.process import EVERY_PROCESS, WITH_API, WITH_LEASE, WITH_WATCHES
from jobs.ipujob.names import IPUJOBS
from jobs.operator.metrics import OPERATOR
from tests.builders.ipujobs import ipujob
from tests.fakes.freeport import free_port
from tests.fakes.promtool import complaints, families
from tests.fakes.waiting import eventually
from tests.integration.metrics.conftest import SYSTEM, scrape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.metrics.conftest import Accounts

pytestmark = pytest.mark.embedded_only
MANAGE = Path(__file__).resolve().parents[3] / "manage.py"


@asynccontextmanager
async def process(folder: Path, *command: str, **environment: str) -> AsyncIterator[Any]:
    """Run a program; its output goes to `<folder>/<program>.log`."""
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            *command, env=os.environ | environment, stdout=log, stderr=log
        )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself, which the test tells of
            running.send_signal(signal.SIGTERM)
        await asyncio.wait_for(running.wait(), 90)


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
async def prometheus(accounts: Accounts, target: str) -> AsyncIterator[str]:
    """A Prometheus that scrapes the target as `reader` and as `stranger`; gives its address."""
    jobs = [
        {
            "job_name": name,
            "authorization": {"credentials_file": str(path)},
            "static_configs": [{"targets": [target]}],
        }
        for name, path in accounts.tokens.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            *jobs,
            {"job_name": "nobody", "static_configs": jobs[0]["static_configs"]},
        ],
    }
    file = accounts.folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    flags = (f"--config.file={file}", f"--storage.tsdb.path={accounts.folder / 'tsdb'}")
    async with process(
        accounts.folder, "prometheus", *flags, f"--web.listen-address={address}"
    ) as running:

        async def ready() -> bool:
            assert running.returncode is None, (accounts.folder / "prometheus.log").read_text()
            return bool(await get(f"http://{address}/-/ready"))

        await eventually(ready)
        yield f"http://{address}"


async def get(url: str) -> str:
    try:
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            return await answer.text() if answer.status == 200 else ""
    except aiohttp.ClientError:
        return ""


async def ask(address: str, query: str) -> dict[tuple[str, ...], float]:
    """An instant query: values by the labels other than those of the scrape."""
    found = json.loads(await get(f"{address}/api/v1/query?query={quote(query)}") or "{}")
    results = found.get("data", {}).get("result", ())
    return {
        tuple(
            v for k, v in sorted(one["metric"].items()) if k not in {"instance", "__name__"}
        ): float(one["value"][1])
        for one in results
    }


async def test_prometheus_reads_what_the_role_allows_and_nobody_else_does(
    accounts: Accounts,
) -> None:
    async with operator(accounts) as target, prometheus(accounts, target) as address:

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
            """The one value; between two scrapes of which one has failed there may be none."""
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
