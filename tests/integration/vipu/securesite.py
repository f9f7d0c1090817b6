"""What tests of the secure mode share: certificates, and clients that show one of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from partitions.vipu.certificates import init_certificates
from partitions.vipu.tlsfiles import ClientTls

if TYPE_CHECKING:
    from pathlib import Path

    from partitions.vipu.certificates import Role


def certificates(folder: Path) -> Path:
    """The folder with certificates of every role for 127.0.0.1; TLS asks a real clock."""
    init_certificates(folder, ["localhost", "127.0.0.1"], datetime.now(UTC))
    return folder


def tls_of(folder: Path, role: Role) -> ClientTls:
    """What a holder of this role shows and trusts."""
    ours = folder / role
    return ClientTls(ours / "ca.crt", ours / "tls.crt", ours / "tls.key")
