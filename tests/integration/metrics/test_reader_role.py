"""The role that may read metrics is found as the guide of the original operator finds it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.metrics.conftest import Accounts


async def test_its_label_finds_the_role(accounts: Accounts) -> None:
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "--kubeconfig", str(accounts.cluster.kubeconfig)),
        *("get", "clusterrole", "-l", "component=metrics-reader", "-o", "name"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert out.decode().split() == ["clusterrole.rbac.authorization.k8s.io/ipuhub-metrics-reader"]
