"""`manage.py run_webhooks` as a process, with a certificate in files and without an API server."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster.security.certificates import Authority
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


@dataclass(frozen=True)
class WebhookProcess:
    """The process, and the addresses of its reviews and of its pages."""

    process: asyncio.subprocess.Process
    reviews: str
    pages: str


@asynccontextmanager
async def running_webhooks(folder: Path, **settings: str) -> AsyncIterator[WebhookProcess]:
    """Run one meanwhile; it answers already. What still runs at the end is killed."""
    issued = Authority(folder / "ca").issue("webhooks", (), ("127.0.0.1",))
    (folder / "tls.crt").write_bytes(issued.certificate)
    (folder / "tls.key").write_bytes(issued.key)
    port, health = (free_port() for _ in range(2))
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "",
        "KUBECONFIG": str(folder / "nowhere"),
        "IPUHUB_WEBHOOK_PORT": str(port),
        "IPUHUB_WEBHOOK_CERTIFICATE_PATH": str(folder / "tls.crt"),
        "IPUHUB_WEBHOOK_KEY_PATH": str(folder / "tls.key"),
        "IPUHUB_HEALTH_PORT": str(health),
        **settings,
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
        yield WebhookProcess(process, f"https://127.0.0.1:{port}", f"http://127.0.0.1:{health}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
