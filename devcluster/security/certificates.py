"""io: the cluster's certificate authority, and the certificates and kubeconfigs it issues."""

from __future__ import annotations

import base64
import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

_SKEW: Final = timedelta(hours=1)
_CA_LIFE: Final = timedelta(days=3650)
_LIFE: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A CA that stays the same over restarts; its files lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ca_file = folder / "ca.crt"
        key_file = folder / "ca.key"
        if not (self.ca_file.exists() and key_file.exists()):
            issued = _make_ca()
            write_private(key_file, issued.key)
            write_private(self.ca_file, issued.certificate)
        self.ca_pem = self.ca_file.read_bytes()
        self._ca = x509.load_pem_x509_certificate(self.ca_pem)
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{key_file} holds no elliptic-curve key")
        self._key = key
        self._folder = folder

    def issue(self, name: str, groups: tuple[str, ...], hosts: tuple[str, ...] = ()) -> Issued:
        """Return a client certificate for a user, or with `hosts` one for a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(x509.Name(attributes), self._ca.subject, key, _LIFE)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _signed(builder, self._key, key)

    def server_context(self, hosts: tuple[str, ...]) -> ssl.SSLContext:
        """Return TLS for the server; a client certificate is asked for, not required."""
        issued = self.issue("kube-apiserver", (), hosts)
        path = self._folder / "server.pem"
        write_private(path, issued.key + issued.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(path)
        context.load_verify_locations(self.ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def kubeconfig(self, url: str, user: str, credentials: dict[str, str]) -> bytes:
        """Return a kubeconfig for `url` with the user's credentials."""
        cluster = {"server": url, "certificate-authority-data": encode(self.ca_pem)}
        context = {"cluster": "ipuhub", "user": user}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "ipuhub", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "ipuhub", "context": context}],
            "current-context": "ipuhub",
        }
        return yaml.safe_dump(config, sort_keys=False).encode()


def self_signed(name: str, host: str) -> tuple[bytes, bytes]:
    """Return a server certificate that only those trust who are given it, and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([_general_name(host)])
    builder = _builder(subject, subject, key, _LIFE).add_extension(names, critical=False)
    issued = _signed(builder, key, key)
    return issued.certificate, issued.key


def encode(data: bytes) -> str:
    """Base64, as kubeconfigs hold PEM."""
    return base64.b64encode(data).decode()


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step, readable by its owner only."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    fresh.replace(path)


def _make_ca() -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ipuhub-devcluster-ca")])
    usage = x509.KeyUsage(
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
    builder = (
        _builder(name, name, key, _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
    )
    return _signed(builder, key, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # certificates are judged by other programs' real clocks
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder,
    signer: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> Issued:
    certificate = builder.sign(signer, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Issued(certificate.public_bytes(serialization.Encoding.PEM), private)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
