"""io: certificates of V-IPU's secure mode: a private CA, and one certificate for each role.

The organization of a certificate is its role, as Kubernetes does for groups, so any CA can issue
them. Each role has a folder with the file names of a Kubernetes TLS Secret.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ipuhub.certificates import (
    CLIENT,
    SERVER,
    Authority,
    issue,
    make_authority,
    pem_of,
    private_pem_of,
    subject_of,
    write_private,
)
from partitions.vipu.tlsfiles import TlsFilesError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

ORGANIZATION: Final = "ipuhub:vipu:"
CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
_CA_KEY: Final = "ca.key"


class Role(StrEnum):
    """The role of a certificate's holder."""

    SERVER = "server"
    AGENT = "agent"
    ADMIN = "admin"
    USER = "user"


_LISTENING: Final = (Role.SERVER, Role.AGENT)


@lru_cache(maxsize=1024)
def role_of(certificate: bytes) -> Role | None:
    """The role in a certificate (PEM) that its CA vouches for; None: it has none."""
    with suppress(ValueError):
        subject = x509.load_pem_x509_certificate(certificate).subject
        for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME):
            name = str(attribute.value)
            if name.startswith(ORGANIZATION) and name.removeprefix(ORGANIZATION) in set(Role):
                return Role(name.removeprefix(ORGANIZATION))
    return None


def init_certificates(folder: Path, hosts: Sequence[str], now: datetime) -> list[Path]:
    """Make a CA and a certificate for each role; return the folders of the roles.

    A CA that is there stays, so that all it has issued stays valid, and the certificates are
    renewed. All files are readable by their owner only. Raise TlsFilesError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(folder, now)
        return [_issue(folder, role, hosts, authority, now) for role in Role]
    except OSError as error:
        raise TlsFilesError(f"cannot write {error.filename}: {error.strerror}") from error


def _authority(folder: Path, now: datetime) -> Authority:
    """The CA of a folder, made if there is none."""
    paths = (folder / CA, folder / _CA_KEY)
    if any(path.exists() for path in paths):
        try:
            certificate = x509.load_pem_x509_certificate(paths[0].read_bytes())
            key = serialization.load_pem_private_key(paths[1].read_bytes(), None)
        except (FileNotFoundError, ValueError) as error:
            raise TlsFilesError(
                f"{folder} has half a CA: restore {CA} and {_CA_KEY}, or choose an empty folder"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TlsFilesError(f"{paths[1]} holds no elliptic-curve key; choose an empty folder")
        return Authority(certificate, key)
    made = make_authority("ipuhub-vipu-ca", now)
    write_private(paths[1], private_pem_of(made.key))
    write_private(paths[0], pem_of(made.certificate))
    return made


def _issue(
    folder: Path, role: Role, hosts: Sequence[str], authority: Authority, now: datetime
) -> Path:
    is_listening = role in _LISTENING
    # A server is a client of its agents.
    usages = [CLIENT, SERVER] if is_listening else [CLIENT]
    subject = subject_of(f"vipu-{role}", [f"{ORGANIZATION}{role}"])
    issued = issue(authority, subject, usages, hosts if is_listening else (), now)
    ours = folder / role
    ours.mkdir(mode=0o700, exist_ok=True)
    write_private(ours / KEY, issued.key)
    write_private(ours / CERTIFICATE, issued.certificate)
    write_private(ours / CA, pem_of(authority.certificate))
    return ours
