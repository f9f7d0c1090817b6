"""io: sources of the Authorization header and the client certificate, and when they rotate."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ipuhub.kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a request: a header value, or a certificate and key (PEM), or none."""

    authorization: str = ""
    certificate: bytes = b""
    key: bytes = b""


class CredentialSource(Protocol):
    """Gives the credentials of now. `read` may block: it reads files or runs a program."""

    def is_fresh(self) -> bool:
        """Return whether what `read` returned last is still to be used; cheap."""

    def invalidate(self) -> None:
        """Discard credentials that the server refused: the next `read` must get new ones."""

    def read(self) -> Credentials:
        """Return the credentials. Raises ConfigError with a sentence that says what to do."""


class StaticCredentials:
    """Credentials that never change: a token or password of a kubeconfig, or none."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def is_fresh(self) -> bool:
        """Always."""
        return True

    def invalidate(self) -> None:
        """Nothing newer exists."""

    def read(self) -> Credentials:
        return self._credentials


class FileCredentials:
    """A bearer token, or a certificate and its key, in files that another program replaces.

    Files are looked at before each request (a stat costs microseconds), so that a rotated token
    is used at once and an expired token never for long.
    """

    def __init__(self, token: str = "", certificate: str = "", key: str = "") -> None:
        self._paths = {"token": token, "certificate": certificate, "key": key}
        self._seen: Mapping[str, object] | None = None

    def is_fresh(self) -> bool:
        """Return whether no file has changed."""
        return self._seen is not None and self._seen == self._marks()

    def invalidate(self) -> None:
        """Read the files again."""
        self._seen = None

    def read(self) -> Credentials:
        """Return the current content of the files."""
        marks = self._marks()
        content = {name: self._content(path) for name, path in self._paths.items()}
        token = content["token"].decode().strip()
        if self._paths["token"] and not token:
            raise ConfigError(f"Token file {self._paths['token']} is empty: put a token into it.")
        self._seen = marks
        return Credentials(
            f"Bearer {token}" if token else "", content["certificate"], content["key"]
        )

    def _marks(self) -> Mapping[str, object]:
        return {path: _file_mark(path) for path in self._paths.values() if path}

    def _content(self, path: str) -> bytes:
        if not path:
            return b""
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"Cannot read credentials from {path}: {error.strerror}.") from error


def _file_mark(path: str) -> object:
    """Return a value that changes with the file's content, also behind the symlinks of mounted
    volumes."""
    try:
        state = Path(path).stat()
    except OSError:
        return None
    return (state.st_mtime_ns, state.st_size, state.st_ino)


class ExecCredentials:
    """A kubeconfig's exec plug-in, run when its credentials are about to expire or were refused.

    `run` returns the plug-in's ExecCredential status. Credentials are renewed one minute before
    they expire, or in the last fifth of a shorter life, so that a plug-in whose tokens live a
    minute does not run for every request.
    """

    def __init__(self, run: Callable[[], Mapping[str, Any]], now: Callable[[], datetime]) -> None:
        self._run = run
        self._now = now
        self._valid_until: datetime | None = None

    def is_fresh(self) -> bool:
        """Return whether the last credentials are not near their end."""
        return self._valid_until is not None and self._now() < self._valid_until

    def invalidate(self) -> None:
        """Run the plug-in again."""
        self._valid_until = None

    def read(self) -> Credentials:
        status = self._run()
        now = self._now()
        self._valid_until = _renewal_time(status.get("expirationTimestamp"), now)
        token = status.get("token") or ""
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if not token and not (certificate and key):
            raise ConfigError(
                "The kubeconfig's exec plug-in returned neither a token nor a client certificate "
                "with its key. Log in again with the tool it belongs to."
            )
        return Credentials(
            f"Bearer {token}" if token else "", (certificate or "").encode(), (key or "").encode()
        )


def _renewal_time(expires: str | datetime | None, now: datetime) -> datetime:
    if not expires:
        return datetime.max.replace(tzinfo=UTC)
    if isinstance(expires, str):
        expires = datetime.fromisoformat(expires)
    return expires - min(timedelta(minutes=1), (expires - now) / 5)


def load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Make `context` show the client certificate on its next connections.

    OpenSSL reads certificates from files only; the key is in a private folder for that moment.
    Raises ConfigError when certificate and key are not PEM or do not belong together.
    """
    with tempfile.TemporaryDirectory(prefix="ipuhub-") as folder:
        path = Path(folder) / "client.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(credentials.certificate + b"\n" + credentials.key)
        try:
            context.load_cert_chain(path)
        except OSError as error:  # ssl.SSLError is an OSError
            raise ConfigError(f"The client certificate cannot be used: {error}.") from error


def model_fields(model: str) -> dict[str, tuple[str, str]]:
    """Fields of a model such as V1PodSpec: JSON name to Python name and the model's word for the
    type (`str`, `list[V1Container]`, `dict(str, str)`, `V1Affinity`, `object`).

    Raises AttributeError for a model that the package does not have.
    """
    from kubernetes.client import models

    kind = getattr(models, model)
    return {
        kind.attribute_map[field]: (field, written) for field, written in kind.openapi_types.items()
    }


def required_fields(model: str) -> frozenset[str]:
    """JSON names of the fields that a model such as V1Container cannot be made without."""
    from kubernetes.client import models

    fields = getattr(models, model).model_fields
    return frozenset(
        info.serialization_alias or name for name, info in fields.items() if info.is_required()
    )


@dataclass(frozen=True, slots=True)
class Trust:
    """The trust in a server: its CAs, its name and the proxy to it.

    `authorities` is PEM text (empty: the system's), `server_name` replaces the host name in the
    certificate check, `proxy` is the URL of an HTTP proxy on the way.
    """

    authorities: str = ""
    verify: bool = True
    server_name: str = ""
    proxy: str = ""


class ClusterConfig:
    """One cluster and one identity. Made by `load_config`, or by hand in tests.

    `server` is the base URL; `namespace` the default namespace of commands; `acts_as` a user to
    impersonate. Usable from several threads and event loops.
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
        """TLS settings with the client certificate, None for plain http; always the same object.

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
        """Return what `headers` would return at once; None if it had to read or run something."""
        known = self._credentials is not None and self._source.is_fresh()
        return self._header() if known else None

    def invalidate(self, refused: Mapping[str, str]) -> None:
        """Renew these headers, because the server refused them, unless that happened already."""
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
        raise ConfigError(
            f"The cluster's certificate authority is not valid PEM: {error}."
        ) from error
    if not trust.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
