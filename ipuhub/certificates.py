"""io: makes certificate authorities, and the certificates that they issue; reads the authorities
that the operating system trusts.

All keys are of the curve P-256. A certificate is valid from an hour ago on, because the clocks of
those who check it differ.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

Key: TypeAlias = ec.EllipticCurvePrivateKey

AUTHORITY_LIFE: Final = timedelta(days=3650)
CERTIFICATE_LIFE: Final = timedelta(days=365)
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
_SKEW: Final = timedelta(hours=1)
_LONGEST_NAME: Final = 64  # characters of a common name
_CA_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority and its key."""

    certificate: x509.Certificate
    key: Key


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


def make_authority(name: str, now: datetime) -> Authority:
    """Return a new authority, which signs certificates but no other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = subject_of(name)
    builder = (
        _builder(subject, subject, key, now)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Authority,
    subject: x509.Name,
    usages: Iterable[x509.ObjectIdentifier],
    hosts: Sequence[str],
    now: datetime,
) -> Issued:
    """Return a certificate for `hosts` (DNS names and addresses; none: of a client only).

    It does not outlive its authority.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(subject, authority.certificate.subject, key, now)
        .not_valid_after(min(now + CERTIFICATE_LIFE, authority.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(signer, critical=False)
    )
    if hosts:
        builder = builder.add_extension(_alternatives(hosts), critical=False)
    return Issued(pem_of(builder.sign(authority.key, hashes.SHA256())), private_pem_of(key))


def self_signed(name: str, host: str, now: datetime) -> Issued:
    """Return a server certificate that only those trust who are given it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = subject_of(name)
    builder = (
        _builder(subject, subject, key, now)
        .not_valid_after(now + CERTIFICATE_LIFE)
        .add_extension(_alternatives([host]), critical=False)
    )
    return Issued(pem_of(builder.sign(key, hashes.SHA256())), private_pem_of(key))


def subject_of(name: str, organizations: Iterable[str] = ()) -> x509.Name:
    """Return the subject of this common name."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_NAME]))
    return x509.Name(attributes)


def host_of(name: str) -> x509.GeneralName:
    """Return a DNS name or an address as a certificate lists it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def key_of(pem: bytes) -> Key | None:
    """Return the private key in `pem`; None if it is of another kind, or no key."""
    try:
        found = serialization.load_pem_private_key(pem, None) if pem else None
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, ec.EllipticCurvePrivateKey) else None


def pem_of(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem_of(key: Key) -> bytes:
    """Return a key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step, readable by its owner only from the start."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    fresh.replace(path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, now: datetime
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


def _alternatives(hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([host_of(host) for host in hosts])


_reading: Final = threading.Lock()
_system: dict[object, ssl.SSLContext] = {}


def trust_system() -> ssl.SSLContext:
    """Return a context that trusts the authorities of the operating system.

    All connections of the process share it, because more than a hundred certificates take 30 ms of
    CPU. They are read again when their file or folder changes.
    """
    paths = ssl.get_default_verify_paths()
    stamp = tuple(_stamp(path) for path in (paths.cafile, paths.capath))
    with _reading:
        if stamp not in _system:
            context = ssl.create_default_context()
            _system.clear()
            _system[stamp] = context
        return _system[stamp]


def _stamp(path: str | None) -> tuple[object, ...]:
    """Return what changes when the file or folder does."""
    try:
        found = Path(path).stat() if path else None
    except OSError:
        found = None
    return (path, found and (found.st_mtime_ns, found.st_ino, found.st_size))
