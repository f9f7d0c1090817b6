"""io: TLS of the V-IPU API from files that can change: CA, certificate and key.

Mounted Secrets are renewed while a process runs, so each new connection reads the current files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from partitions.vipu.client import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger(__name__)
_Stamp = tuple[tuple[int, int], ...]
_NEVER: Final[_Stamp] = ((-1, -1),)


class TlsFilesError(Exception):
    """The files cannot be used; the sentence says why."""


def _stamp(paths: tuple[Path | None, ...]) -> _Stamp:
    """Return a stamp that changes when the file does; raises OSError."""
    stats = [path.stat() for path in paths if path]
    return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)


def _check_pair(certificate: bytes, key: bytes, path: Path | None) -> None:
    """Raise TlsFilesError unless key and certificate match: while both are being replaced the key
    may be new and the certificate old."""
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        private = serialization.load_pem_private_key(key, None).public_key()
    except (TypeError, ValueError) as error:
        raise TlsFilesError(f"{path} or its key is not a PEM file: {error}") from error
    if public != private:
        raise TlsFilesError(f"{path} and its key do not belong together")


class ClientTls:
    """A client's certificate and the CAs it trusts; a call returns the current content of the
    files.

    Raises TlsFilesError where they cannot be read at first; later the last good files stay in use.
    """

    def __init__(self, ca: Path, certificate: Path | None = None, key: Path | None = None) -> None:
        if bool(certificate) != bool(key):
            raise TlsFilesError("a certificate and its key belong together: name both or none")
        self._paths = (ca, certificate, key)
        self._seen = _NEVER
        try:
            self._files = self._read()
        except OSError as error:
            raise TlsFilesError(f"cannot read {error.filename}: {error.strerror}") from error

    def __call__(self) -> TlsFiles:
        """The files as they are; the same object while they have not changed."""
        try:
            if _stamp(self._paths) != self._seen:
                self._files = self._read()
        except (OSError, TlsFilesError) as error:
            log.debug("TLS files not used", problem=str(error))
        return self._files

    def _read(self) -> TlsFiles:
        seen = _stamp(self._paths)
        ca, certificate, key = (path.read_bytes() if path else None for path in self._paths)
        if certificate and key:
            _check_pair(certificate, key, self._paths[1])
        self._seen = seen
        return TlsFiles(ca or b"", certificate, key)


@dataclass(slots=True)
class ServerTls:
    """A server's certificate and key, and the CA of its clients, if they need a certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    _seen: _Stamp = _NEVER

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files. Raises TlsFilesError."""
        try:
            first = self._read()
        except OSError as error:
            raise TlsFilesError(f"cannot read {error.filename}: {error.strerror}") from error
        fetch: Any = self._fetch  # may return None, which the stubs do not know
        return grpc.dynamic_ssl_server_credentials(first, fetch, self.client_ca is not None)

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The files for the next connection; None: as before."""
        try:
            return None if _stamp(self._paths) == self._seen else self._read()
        except (OSError, TlsFilesError) as error:
            log.warning("changed TLS files not used", problem=str(error))
            return None

    @property
    def _paths(self) -> tuple[Path | None, ...]:
        return (self.certificate, self.key, self.client_ca)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        seen = _stamp(self._paths)
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        _check_pair(pair[1], pair[0], self.certificate)
        roots = self.client_ca.read_bytes() if self.client_ca else None
        self._seen = seen
        return grpc.ssl_server_certificate_configuration([pair], roots)
