"""io: one cluster and one identity: its address, how to trust it, and what to show it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.kube.credentials import Credentials, StaticCredentials, load_certificate
from ipuhub.kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipuhub.kube.credentials import CredentialSource


@dataclass(frozen=True, slots=True)
class Trust:
    """How the server is recognised and reached.

    `authorities` is PEM text (empty: the system's), `server_name` replaces the host name in the
    certificate check, `proxy` is the URL of an HTTP proxy on the way.
    """

    authorities: str = ""
    verify: bool = True
    server_name: str = ""
    proxy: str = ""


class ClusterConfig:
    """One cluster and one identity. Made by `load_config`, or by hand in tests.

    `server` is the base URL; `namespace` the one used where a command gives none; `acts_as` a user
    to impersonate. Usable from several threads and event loops.
    """

    def __init__(
        self,
        server: str,
        namespace: str = "default",
        *,
        trust: Trust | None = None,
        source: CredentialSource | None = None,
        acts_as: str = "",
    ) -> None:
        self.server = server.rstrip("/")
        self.namespace = namespace
        self.trust = trust or Trust()
        self.acts_as = acts_as
        self._source: CredentialSource = source or StaticCredentials(Credentials())
        self._credentials: Credentials | None = None
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def acting_as(self, user: str) -> ClusterConfig:
        """The same, impersonating `user`: the identity needs the right to (`impersonate`)."""
        return ClusterConfig(
            self.server, self.namespace, trust=self.trust, source=self._source, acts_as=user
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS settings with the client certificate, None for plain http; one object for ever.

        May read files or run an exec plug-in. Raises ConfigError.
        """
        if not self.server.startswith("https:"):
            return None
        with self._lock:
            if self._context is None:
                context = _make_context(self.trust)
                credentials = self._credentials or self._source.read()
                if credentials.certificate:
                    load_certificate(context, credentials)
                self._credentials, self._context = credentials, context
        return self._context

    async def headers(self) -> Mapping[str, str]:
        """The Authorization header (or none), renewed when it is due.

        Raises ConfigError when no credentials can be had.
        """
        if self.fresh_headers() is None:
            await asyncio.to_thread(self._renew)
        return self._header()

    def fresh_headers(self) -> Mapping[str, str] | None:
        """What `headers` would return at once; None when it would have to read or run something."""
        known = self._credentials is not None and self._source.is_fresh()
        return self._header() if known else None

    def invalidate(self, refused: Mapping[str, str]) -> None:
        """The server refused these headers: get new ones, unless somebody did meanwhile."""
        if self._header() == refused:
            self._source.invalidate()

    def _header(self) -> Mapping[str, str]:
        authorization = self._credentials.authorization if self._credentials else ""
        headers = {"Authorization": authorization} if authorization else {}
        return headers | ({"Impersonate-User": self.acts_as} if self.acts_as else {})

    def _renew(self) -> None:
        with self._lock:
            old = self._credentials
            if old is not None and self._source.is_fresh():
                return  # another request renewed them meanwhile
            new = self._source.read()
            changed = old is None or (old.certificate, old.key) != (new.certificate, new.key)
            if self._context is not None and new.certificate and changed:
                load_certificate(self._context, new)
            self._credentials = new


def _make_context(trust: Trust) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=trust.authorities or None)
    except ssl.SSLError as error:
        raise ConfigError(f"The cluster's certificate authority is no PEM: {error}.") from error
    if not trust.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
