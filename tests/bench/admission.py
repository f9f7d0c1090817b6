"""The admission webhooks of a round: their process, and their registration at the API server."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from devcluster.demo.cluster import apply_manifest
from devcluster.demo.supervisor import Process
from devcluster.demo.webhooks import CERTIFICATE, HOST, KEY, keep_certificate
from devcluster.security.certificates import Authority
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import Resource
from jobs.webhooks.configuration import WebhookScope, build_configurations
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH
from tests.e2e.running_demo import ROOT
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

_ADMISSION: Final = "admissionregistration.k8s.io"


class Admission:
    """Webhooks that judge jobs, but, as in the chart, not what the operator of `account` writes."""

    def __init__(self, folder: Path, account: str) -> None:
        self.port = free_port()
        self._health = free_port()
        self._folder = folder / "webhooks"
        self._authority = Authority(folder / "pki")
        namespace, _, name = account.partition("/")
        self._operator = f"system:serviceaccount:{namespace}:{name}"
        keep_certificate(self._authority, self._folder, datetime.now(UTC))

    def process(
        self, environment: dict[str, str], answers: Callable[[str], Awaitable[bool]]
    ) -> Process:
        """The process that answers the API server."""
        own = {
            "IPUHUB_WEBHOOK_PORT": str(self.port),
            "IPUHUB_WEBHOOK_CERTIFICATE_PATH": str(self._folder / CERTIFICATE),
            "IPUHUB_WEBHOOK_KEY_PATH": str(self._folder / KEY),
            "IPUHUB_HEALTH_PORT": str(self._health),
        }
        return Process(
            "webhooks",
            [sys.executable, str(ROOT / "manage.py"), "run_webhooks"],
            environment | own,
            is_ready=lambda: answers(f"http://127.0.0.1:{self._health}/readyz"),
        )

    @contextlib.asynccontextmanager
    async def configured(self, kubeconfig: Path) -> AsyncIterator[None]:
        """Have the API server ask the webhooks meanwhile."""
        scope = WebhookScope(
            at=f"https://{HOST}:{self.port}",
            ca_pem=self._authority.ca_pem,
            mutate_path=MUTATE_PATH,
            validate_path=VALIDATE_PATH,
            name="ipuhub-bench",
            exempt_users=(self._operator,),
            has_conditions=True,
        )
        made = build_configurations(scope)
        async with KubeClient(load_config(str(kubeconfig))) as client:
            try:
                for manifest in made:
                    await apply_manifest(client, manifest)
                yield
            finally:
                for one in made:
                    plural = f"{one['kind'].lower()}s"
                    resource = Resource(_ADMISSION, "v1", plural, one["kind"], namespaced=False)
                    await client.delete(resource, one["metadata"]["name"])
