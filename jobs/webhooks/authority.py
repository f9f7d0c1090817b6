"""io: the webhooks' own certificate authority, and the order of its renewal.

A certificate is served only after every client trusts its authority. Until then the old
certificate, which is still valid, is served.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

AUTHORITY_LIFE: Final = timedelta(days=3650)
CERTIFICATE_LIFE: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=90)
_SKEW: Final = timedelta(hours=1)  # of the clocks of those who check it
_MOST_NAME: Final = 64  # characters of a common name
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
class Keys:
    """The contents of the Secret in PEM; an empty field is absent.

    `trusted` are the certificates of authorities, the signing authority first: its key is
    `authority_key`. `certificate` and `key` are served.
    """

    trusted: bytes = b""
    authority_key: bytes = b""
    certificate: bytes = b""
    key: bytes = b""


def with_authority(keys: Keys, now: datetime) -> Keys:
    """Return `keys` with an authority that is valid for a while; `keys` itself if it has one.

    An older authority stays trusted until it expires, because its certificate is still served.
    """
    known = _certificates(keys.trusted)
    if known and _is_good(known[0], now) and _matches(known[0], keys.authority_key):
        return keys
    made, key = _make_authority(now)
    kept = [one for one in known if one.not_valid_after_utc > now]
    trusted = b"".join(_pem(one) for one in (made, *kept))
    return replace(keys, trusted=trusted, authority_key=_private(key))


def with_certificate(keys: Keys, names: Sequence[str], now: datetime) -> Keys:
    """Return `keys` with a certificate of the authority for `names` (DNS names and addresses).

    Return `keys` itself if its certificate is valid for a while.
    """
    authority = _certificates(keys.trusted)[0]
    if is_served_well(keys, names, now):
        return keys
    signer = _key(keys.authority_key)
    if signer is None:
        raise ValueError("the authority has no key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(names[0])
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    end = min(now + CERTIFICATE_LIFE, authority.not_valid_after_utc)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(subject, authority.subject, key, (now - _SKEW, end))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(alternatives, critical=False)
        .add_extension(usage, critical=False)
        .add_extension(issuer, critical=False)
    )
    signed = builder.sign(signer, hashes.SHA256())
    return replace(keys, certificate=_pem(signed), key=_private(key))


def is_served_well(keys: Keys, names: Sequence[str], now: datetime) -> bool:
    """Whether the certificate is of the authority that signs now, for just these names, and good
    for a while."""
    known, served = _certificates(keys.trusted), _certificates(keys.certificate)
    if not known or not served or not _matches(served[0], keys.key):
        return False
    try:
        served[0].verify_directly_issued_by(known[0])
        found = served[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    wanted = {_general_name(name) for name in names}
    return set(found) == wanted and _is_good(served[0], now)


def is_valid(keys: Keys, now: datetime) -> bool:
    """Whether the certificate can be served: its authority is trusted, and it has not ended."""
    served = _certificates(keys.certificate)
    if not served or not _matches(served[0], keys.key) or served[0].not_valid_after_utc <= now:
        return False
    return any(_signed_by(served[0], one) for one in _certificates(keys.trusted))


def ends_at(pem: bytes) -> datetime:
    """Return when a certificate expires. Raise ValueError if it is no certificate."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates in `pem`; none if it is empty or not PEM."""
    try:
        return x509.load_pem_x509_certificates(pem) if pem else []
    except ValueError:
        return []


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        found = serialization.load_pem_private_key(pem, None) if pem else None
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, ec.EllipticCurvePrivateKey) else None


def _matches(certificate: x509.Certificate, key_pem: bytes) -> bool:
    key = _key(key_pem)
    return key is not None and key.public_key() == certificate.public_key()


def _is_good(certificate: x509.Certificate, now: datetime) -> bool:
    return now + RENEW_BEFORE < certificate.not_valid_after_utc


def _make_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    # Two authorities at one time must not have one name: who checks chooses by the name.
    name = _name(f"ipuhub-webhooks-ca {now:%Y-%m-%dT%H:%M:%SZ}")
    builder = (
        _builder(name, name, key, (now - _SKEW, now + AUTHORITY_LIFE))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
    )
    return builder.sign(key, hashes.SHA256()), key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    life: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    begin, end = life
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MOST_NAME])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
