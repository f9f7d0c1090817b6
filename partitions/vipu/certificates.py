"""io: certificates of V-IPU's secure mode: a CA of its own, and one certificate for each role.

A certificate names its role as its organization, as Kubernetes names groups: so any CA can issue
them. Each role has a folder with the names of a Kubernetes TLS Secret.
"""

from __future__ import annotations

import ipaddress
import os
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from partitions.vipu.tlsfiles import TlsFilesError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

ORGANIZATION: Final = "ipuhub:vipu:"
CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
_CA_KEY: Final = "ca.key"
_SKEW: Final = timedelta(hours=1)
_CA_LIFE: Final = timedelta(days=3650)
_LIFE: Final = timedelta(days=365)


class Role(StrEnum):
    """What the holder of a certificate is."""

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
        ca, key = _authority(folder, now)
        return [_issue(folder, role, hosts, (ca, key), now) for role in Role]
    except OSError as error:
        raise TlsFilesError(f"cannot write {error.filename}: {error.strerror}") from error


def _authority(folder: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
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
        return certificate, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ipuhub-vipu-ca")])
    signing = ("digital_signature", "key_cert_sign", "crl_sign")
    others = (
        *("content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "encipher_only", "decipher_only"),
    )
    usage = x509.KeyUsage(**dict.fromkeys(signing, True), **dict.fromkeys(others, False))
    builder = (
        _builder(name, name, key, now)
        .not_valid_after(now + _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    certificate = builder.sign(key, hashes.SHA256())
    _write(paths[1], _private(key))
    _write(paths[0], _public(certificate))
    return certificate, key


def _issue(
    folder: Path,
    role: Role,
    hosts: Sequence[str],
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    now: datetime,
) -> Path:
    ca, ca_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"{ORGANIZATION}{role}"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"vipu-{role}"),
        ]
    )
    # A server is a client of its agents.
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    usages += [ExtendedKeyUsageOID.SERVER_AUTH] if role in _LISTENING else []
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = (
        _builder(subject, ca.subject, key, now)
        .not_valid_after(min(now + _LIFE, ca.not_valid_after_utc))
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer, critical=False)
    )
    if role in _LISTENING:
        names = x509.SubjectAlternativeName([_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(ca_key, hashes.SHA256())
    ours = folder / role
    ours.mkdir(mode=0o700, exist_ok=True)
    _write(ours / KEY, _private(key))
    _write(ours / CERTIFICATE, _public(certificate))
    _write(ours / CA, _public(ca))
    return ours


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes) -> None:
    """Replace a file in one step, readable by its owner only from the start."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    fresh.replace(path)
