"""io: the certificates and keys of an API server started for one test run."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

    PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

LIFETIME = dt.timedelta(days=1)


def write_certificates(folder: Path) -> Path:
    """Write ca, apiserver and admin (.crt, .key) and the accounts' key pair; return `folder`."""
    folder.mkdir(parents=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("conformance-ca")
    ca = _builder(ca_name, ca_name, ca_key)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    _write_pair(folder, "ca", ca.sign(ca_key, hashes.SHA256()), ca_key)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    for name, subject, usage in (
        ("apiserver", _name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH),
        ("admin", _name("admin", "system:masters"), ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _builder(subject, ca_name, key)
        leaf = leaf.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
        _write_pair(folder, name, leaf.sign(ca_key, hashes.SHA256()), key)
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(folder / "accounts.key", accounts)
    public = accounts.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "accounts.pub").write_bytes(public)
    return folder


def _name(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: PrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _write_pair(folder: Path, name: str, certificate: x509.Certificate, key: PrivateKey) -> None:
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / f"{name}.crt").write_bytes(pem)
    _write_key(folder / f"{name}.key", key)


def _write_key(path: Path, key: PrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)
