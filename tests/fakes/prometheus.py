"""A real Prometheus, Debian's, as a process of a test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import yaml

from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


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
async def prometheus(
    folder: Path, scrapes: list[dict[str, Any]], rules: Sequence[Path] = (), seconds: int = 1
) -> AsyncIterator[str]:
    """A Prometheus that scrapes and evaluates these rules so often; gives its address."""
    config = {
        "global": {
            "scrape_interval": f"{seconds}s",
            "scrape_timeout": f"{seconds}s",
            "evaluation_interval": f"{seconds}s",
        },
        "rule_files": [str(rule) for rule in rules],
        "scrape_configs": scrapes,
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    flags = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}")
    async with process(folder, "prometheus", *flags, f"--web.listen-address={address}") as running:

        async def ready() -> bool:
            assert running.returncode is None, (folder / "prometheus.log").read_text()
            return bool(await get(f"http://{address}/-/ready"))

        await eventually(ready)
        yield f"http://{address}"


async def get(url: str) -> str:
    """Return the body that is answered with 200; empty: another answer."""
    try:
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            return await answer.text() if answer.status == 200 else ""
    except aiohttp.ClientError:
        return ""


async def ask(address: str, query: str) -> dict[tuple[str, ...], float]:
    """Run an instant query: values by their labels, without the labels of the scrape."""
    found = json.loads(await get(f"{address}/api/v1/query?query={quote(query)}") or "{}")
    results = found.get("data", {}).get("result", ())
    return {
        tuple(
            v for k, v in sorted(one["metric"].items()) if k not in {"instance", "__name__"}
        ): float(one["value"][1])
        for one in results
    }
