"""io: the demo's admission webhooks: their certificate and configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from devcluster.demo.cluster import apply_manifest
from devcluster.security.certificates import Authority
from ipuhub.certificates import write_private
from jobs.webhooks.configuration import WebhookScope, build_configurations
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH

if TYPE_CHECKING:
    from pathlib import Path

    from ipuhub.kube.client import KubeClient

HOST: Final = "127.0.0.1"
CERTIFICATE, KEY = "tls.crt", "tls.key"
_RENEW_BEFORE: Final = timedelta(days=30)


def keep_certificate(authority: Authority, folder: Path, now: datetime) -> None:
    """See to a certificate of `authority` in `folder` that is good for a month from `now` on."""
    if _is_good(folder, authority, now):
        return
    issued = authority.issue("ipuhub-webhooks", (), (HOST,))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(folder / KEY, issued.key)
    write_private(folder / CERTIFICATE, issued.certificate)


async def apply_configurations(
    client: KubeClient, authority: Authority, port: int, skipped: tuple[str, ...]
) -> None:
    """Make the API server ask the webhooks on `port`, but not about `skipped` namespaces."""
    scope = WebhookScope(
        at=f"https://{HOST}:{port}",
        ca_pem=authority.ca_pem,
        mutate_path=MUTATE_PATH,
        validate_path=VALIDATE_PATH,
        skipped_namespaces=skipped,
    )
    for manifest in build_configurations(scope):
        await apply_manifest(client, manifest)


def renew_certificate(pki: Path, folder: Path) -> Authority:
    """The same as `keep_certificate` for the CA in `pki`, now; returns the CA."""
    authority = Authority(pki)
    keep_certificate(authority, folder, datetime.now(UTC))
    return authority


def _is_good(folder: Path, authority: Authority, now: datetime) -> bool:
    """Return whether there is a pair that our CA signed and that does not expire soon."""
    try:
        found = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.ca_pem))
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return (folder / KEY).exists() and now + _RENEW_BEFORE < found.not_valid_after_utc
