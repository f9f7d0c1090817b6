"""io: the webhooks' own certificate authority, and the order of its renewal.

A certificate is served only after every client trusts its authority. Until then the old
certificate, which is still valid, is served.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from ipuhub.certificates import (
    SERVER,
    Authority,
    host_of,
    issue,
    key_of,
    make_authority,
    pem_of,
    private_pem_of,
    subject_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

RENEW_BEFORE: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class CertificateSecret:
    """The contents of the Secret in PEM; an empty field is absent.

    `trusted` are the certificates of authorities, the signing authority first: its key is
    `authority_key`. `certificate` and `key` are served.
    """

    trusted: bytes = b""
    authority_key: bytes = b""
    certificate: bytes = b""
    key: bytes = b""


def with_authority(keys: CertificateSecret, now: datetime) -> CertificateSecret:
    """Return `keys` with an authority that is valid for a while; `keys` itself if its authority is.

    An older authority stays trusted until it expires, because its certificate is still served.
    """
    known = _certificates(keys.trusted)
    if known and _is_good(known[0], now) and _matches(known[0], keys.authority_key):
        return keys
    # Two authorities at one time must not have one name: who checks chooses by the name.
    made = make_authority(f"ipuhub-webhooks-ca {now:%Y-%m-%dT%H:%M:%SZ}", now)
    unexpired = [certificate for certificate in known if certificate.not_valid_after_utc > now]
    trusted = b"".join(pem_of(certificate) for certificate in (made.certificate, *unexpired))
    return replace(keys, trusted=trusted, authority_key=private_pem_of(made.key))


def with_certificate(
    keys: CertificateSecret, names: Sequence[str], now: datetime
) -> CertificateSecret:
    """Return `keys` with a certificate of the authority for `names` (DNS names and addresses).

    Return `keys` itself if its certificate is valid for a while.
    """
    authority = _certificates(keys.trusted)[0]
    if is_served_well(keys, names, now):
        return keys
    signer = key_of(keys.authority_key)
    if signer is None:
        raise ValueError("the authority has no key")
    issued = issue(Authority(authority, signer), subject_of(names[0]), [SERVER], names, now)
    return replace(keys, certificate=issued.certificate, key=issued.key)


def is_served_well(keys: CertificateSecret, names: Sequence[str], now: datetime) -> bool:
    """Return whether the certificate is of the authority that signs now, for just these names, and
    good for a while."""
    known, served = _certificates(keys.trusted), _certificates(keys.certificate)
    if not known or not served or not _matches(served[0], keys.key):
        return False
    try:
        served[0].verify_directly_issued_by(known[0])
        found = served[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    wanted = {host_of(name) for name in names}
    return set(found) == wanted and _is_good(served[0], now)


def is_valid(keys: CertificateSecret, now: datetime) -> bool:
    """Return whether the certificate can be served: its authority is trusted, and it has not
    ended."""
    served = _certificates(keys.certificate)
    if not served or not _matches(served[0], keys.key) or served[0].not_valid_after_utc <= now:
        return False
    return any(_signed_by(served[0], certificate) for certificate in _certificates(keys.trusted))


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


def _matches(certificate: x509.Certificate, key_pem: bytes) -> bool:
    key = key_of(key_pem)
    return key is not None and key.public_key() == certificate.public_key()


def _is_good(certificate: x509.Certificate, now: datetime) -> bool:
    return now + RENEW_BEFORE < certificate.not_valid_after_utc
