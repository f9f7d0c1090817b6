"""io: the webhooks' self-made certificate, in a Secret that all replicas read.

The leader creates and renews it, and writes the CA into the webhook configurations. Every replica
serves the certificate in the Secret.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from ipuhub.kube.errors import ApiError, Conflict, NotFound
from ipuhub.kube.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from jobs.webhooks.authority import (
    CertificateSecret,
    ends_at,
    is_served_well,
    is_valid,
    with_authority,
    with_certificate,
)
from jobs.webhooks.server import CERTIFICATE_END, expired, server_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

log = structlog.get_logger(__name__)
_READ_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 30.0
_SETTLE_SECONDS: Final = 60.0  # in which API servers see a changed configuration
_FIELDS: Final = {
    "ca.crt": "trusted",
    "ca.key": "authority_key",
    "tls.crt": "certificate",
    "tls.key": "key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """The Secret, the name of both configurations, and the names in the certificate."""

    namespace: str
    secret: str
    configuration: str
    names: tuple[str, ...]


class KeptCertificate:
    """The server certificate of the Secret; `clock` gives aware UTC times.

    `problem` says why there is no certificate to serve, or why the Secret's is not in use (the
    last good certificate stays). `unpublished` says why the API server does not trust it yet; once
    it does, `note` gets further trouble, since a replica that answers is better than none.
    """

    def __init__(
        self, client: KubeClient, options: KeeperOptions, clock: Callable[[], datetime]
    ) -> None:
        self.context = server_context()
        self.problem = "not read yet"
        self.unpublished = ""
        self.note: Callable[[str], None] = lambda _: None
        self._client, self._options, self._clock = client, options, clock
        self._served = CertificateSecret()
        self._end: datetime | None = None
        self._published: tuple[bytes, datetime] | None = None
        self._was_published = False
        self._trouble = ""

    def fill_metrics(self) -> None:
        """Say when the certificate in use ends."""
        if self._end is not None:
            CERTIFICATE_END.set(self._end.timestamp())

    async def follow(self) -> None:
        """Serve the certificate in the Secret, forever."""
        while True:
            await self.refresh()
            await asyncio.sleep(_READ_SECONDS)

    async def refresh(self) -> None:
        """Read the Secret once, and serve its certificate if it is new."""
        try:
            _, keys = await self._read()
        except ApiError as error:
            # The served certificate stays valid, so reviews do not wait for the API server.
            self._complain(self._why(error) if self._end is None else self._expired())
            return
        self._serve(keys)

    async def keep(self) -> None:
        """Make and renew the certificate for as long as this replica leads."""
        self._tell("not checked yet")
        try:
            while True:
                await self.renew()
                await asyncio.sleep(self._pause_seconds())
        finally:
            self._tell("")  # the next leader's

    async def renew(self) -> None:
        """Do what is due now of: a new authority, its publication, and a certificate of it."""
        try:
            await self._renew()
        except Conflict:
            return  # another replica wrote it meanwhile: read it again
        except ApiError as error:
            problem = self._why(error)
            if problem != self._trouble:
                log.warning("cannot keep the certificate", problem=problem)
            self._tell(problem)

    async def _renew(self) -> None:
        now, names = self._clock(), self._options.names
        secret, keys = await self._read()
        known = with_authority(keys, now)
        has_served = is_valid(known, now)
        if not has_served:  # without clients there is no need to wait
            known = with_certificate(known, names, now)
        if known != keys:
            secret = await self._write(secret, known)
            log.info("certificate made" if not has_served else "new authority made")
        await self._publish(known.trusted)
        if has_served and not is_served_well(known, names, now) and self._has_settled(known):
            known = with_certificate(known, names, now)
            await self._write(secret, known)
            log.info("certificate renewed")
        self._serve(known)

    def _pause_seconds(self) -> float:
        """Soon again while something is missing."""
        return _READ_SECONDS if self._trouble else _CHECK_SECONDS

    def _tell(self, trouble: str) -> None:
        self._trouble = trouble
        self.unpublished = "" if self._was_published else trouble
        self.note(trouble if self._was_published else "")

    def _has_settled(self, keys: CertificateSecret) -> bool:
        """Return whether every API server has had time to load the CA."""
        if self._published is None or self._published[0] != keys.trusted:
            return False
        age = (self._clock() - self._published[1]).total_seconds()
        return age >= _SETTLE_SECONDS

    async def _publish(self, trusted: bytes) -> None:
        """Have both configurations trust these authorities. Raises ApiError."""
        bundle = base64.b64encode(trusted).decode()
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            found = await self._client.get(resource, self._options.configuration)
            clients = [hook["clientConfig"] for hook in found.get("webhooks") or ()]
            if all(client.get("caBundle") == bundle for client in clients):
                continue
            for client in clients:
                client["caBundle"] = bundle
            self._published = None
            await self._client.replace(resource, found)
            log.info("authority published", configuration=resource.plural)
        if self._published is None or self._published[0] != trusted:
            self._published = trusted, self._clock()
        self._was_published = True
        self._tell("")

    async def _read(self) -> tuple[Manifest, CertificateSecret]:
        secret = await self._client.get(SECRETS, self._options.secret, self._options.namespace)
        data = secret.get("data") or {}
        fields = {field: _decoded(data.get(key)) for key, field in _FIELDS.items()}
        return secret, CertificateSecret(**fields)

    async def _write(self, secret: Manifest, keys: CertificateSecret) -> Manifest:
        data: dict[str, Any] = dict(secret.get("data") or {})
        for key, field in _FIELDS.items():
            data[key] = base64.b64encode(getattr(keys, field)).decode()
        return await self._client.replace(SECRETS, {**secret, "data": data})

    def _serve(self, keys: CertificateSecret) -> None:
        if not (keys.certificate and keys.key):
            none = f"{self._place} has no certificate yet"
            self._complain(none if self._end is None else self._expired())
            return
        if (keys.certificate, keys.key) == (self._served.certificate, self._served.key):
            self._complain(self._expired())
            return
        try:
            load_pair(self.context, keys.certificate, keys.key)
        except (OSError, ssl.SSLError) as error:
            self._complain(f"the certificate in {self._place} is not usable: {error}")
            return
        self._served, self._end = keys, ends_at(keys.certificate)
        log.info("certificate loaded")
        self._complain(self._expired())

    def _expired(self) -> str:
        return "" if self._end is None else expired(self._end, self._clock())

    def _complain(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("no new certificate in use", problem=problem)
        self.problem = problem

    @property
    def _place(self) -> str:
        return f"Secret {self._options.namespace}/{self._options.secret}"

    def _why(self, error: ApiError) -> str:
        """The sentence for a person who can mend it."""
        if not isinstance(error, NotFound):
            return str(error)
        if self._options.secret in str(error):
            return f"{self._place} does not exist: create it empty ({error})"
        return f"apply the output of make_webhook_configuration ({error})"


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a certificate and its key (PEM) from now on. Raises OSError (ssl.SSLError)."""
    with contextlib.ExitStack() as stack:
        paths = []
        for content in (certificate, key):  # ssl reads files only; these are never on a disk
            descriptor = os.memfd_create("ipuhub")
            stack.callback(os.close, descriptor)
            os.write(descriptor, content)
            paths.append(f"/proc/self/fd/{descriptor}")
        # A fresh context is tried first: a failed load would leave the used one half changed.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*paths)
        context.load_cert_chain(*paths)


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        return b""
