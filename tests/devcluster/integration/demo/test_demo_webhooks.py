"""The registration of the demo's webhooks: certificate, configurations, port."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from devcluster.demo.webhooks import CERTIFICATE, KEY, apply_configurations, keep_certificate
from devcluster.security.certificates import Authority
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from jobs.ipujob.privileges import PROFILES

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)  # certificates are issued by the real clock


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def test_a_certificate_is_of_the_clusters_authority_and_kept(
    authority: Authority, tmp_path: Path
) -> None:
    keep_certificate(authority, tmp_path / "webhooks", NOW)
    text = (tmp_path / "webhooks" / CERTIFICATE).read_bytes()
    x509.load_pem_x509_certificate(text).verify_directly_issued_by(
        x509.load_pem_x509_certificate(authority.ca_pem)
    )
    keep_certificate(authority, tmp_path / "webhooks", NOW + timedelta(days=300))
    assert (tmp_path / "webhooks" / CERTIFICATE).read_bytes() == text
    for name in (CERTIFICATE, KEY):
        assert (tmp_path / "webhooks" / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("case", ["near its end", "no certificate", "no key", "of another CA"])
def test_a_certificate_that_is_no_good_is_renewed(
    authority: Authority, tmp_path: Path, case: str
) -> None:
    folder = tmp_path / "webhooks"
    before = Authority(tmp_path / "other") if case == "of another CA" else authority
    keep_certificate(before, folder, NOW)
    old = (folder / CERTIFICATE).read_bytes()
    if case == "no certificate":
        (folder / CERTIFICATE).write_text("nonsense")
    if case == "no key":
        (folder / KEY).unlink()
    days = 340 if case == "near its end" else 0
    keep_certificate(authority, folder, NOW + timedelta(days=days))
    assert (folder / CERTIFICATE).read_bytes() != old
    assert (folder / KEY).exists()


async def test_the_configurations_follow_the_port_and_leave_some_namespaces_out(
    tmp_path: Path,
) -> None:
    cluster = DevCluster(tmp_path / "cluster")
    await cluster.start()
    authority = Authority(tmp_path / "cluster" / "pki")
    try:
        async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
            for port in (9443, 9444):
                await apply_configurations(client, authority, port, ("kube-system", "own"))
            mutating, validating = [
                configuration["webhooks"]
                for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
                for configuration in (await client.list(resource)).items
            ]
            assert [len(mutating), len(validating)] == [1, 1 + len(PROFILES)]
            for hook in (*mutating, *validating):
                assert hook["clientConfig"]["url"].startswith("https://127.0.0.1:9444/")
                assert base64.b64decode(hook["clientConfig"]["caBundle"]) == authority.ca_pem
                assert hook["failurePolicy"] == "Fail"
                *_, left_out = hook["namespaceSelector"]["matchExpressions"]
                assert (left_out["key"], left_out["operator"], left_out["values"]) == (
                    "kubernetes.io/metadata.name",
                    "NotIn",
                    ["kube-system", "own"],
                )
    finally:
        await cluster.stop()
