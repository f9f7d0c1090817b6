"""io: the certificate authorities that the provider's certificate is verified against.

They come from the operating system or from one file. A mounted file can change while the process
runs, so each connection uses the current file. If a changed file cannot be used, the last good file
stays: an unreadable file never means that nothing is verified.
"""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import structlog

from ipuhub.certificates import trust_system

_LOG = structlog.get_logger(__name__)
_Stamp = tuple[int, int, int]


class TrustError(Exception):
    """The CA file cannot be used; the sentence says why and what to do."""


class Trust:
    """Certificate authorities of a PEM file, or of the operating system if `path` is empty."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._kept: tuple[_Stamp, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for new connections. Raise TrustError if no file could be used yet."""
        if not self._path:
            return trust_system()
        with self._lock:
            try:
                stamp = self._stamp()
                if self._kept is None or self._kept[0] != stamp:
                    self._kept = (stamp, self._loaded())
            except TrustError as error:
                if self._kept is None:
                    raise
                _LOG.warning("the CA file of the OIDC provider was not read", problem=str(error))
            return self._kept[1]

    def _stamp(self) -> _Stamp:
        """Return what changes when the file does."""
        try:
            found = Path(self._path).stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _loaded(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._path)
        except ssl.SSLError as error:  # an OSError, too
            raise self._empty() from error
        except OSError as error:
            raise self._unreadable(error) from error
        if not context.cert_store_stats()["x509"]:  # a file of revocation lists
            raise self._empty()
        return context

    def _unreadable(self, error: OSError) -> TrustError:
        return TrustError(
            f"IPUHUB_OIDC_CA_PATH: cannot read {self._path}: {error.strerror}. Correct the path, "
            "or mount the file with the CA certificates there"
        )

    def _empty(self) -> TrustError:
        return TrustError(
            f"IPUHUB_OIDC_CA_PATH: {self._path} has no certificate that can be read. Put the CA "
            "certificates there as PEM (-----BEGIN CERTIFICATE-----)"
        )
