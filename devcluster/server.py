"""io: the embedded Kubernetes API as one object to start and stop."""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import yaml
from aiohttp import web

from devcluster.api import handle
from devcluster.context import Api
from devcluster.controllers import Controllers, Namespaces
from devcluster.gc import GarbageCollector
from devcluster.nodelink import NodeLink
from devcluster.schemas.kinds import BY_KIND
from devcluster.schemas.registry import Registry
from devcluster.security.authentication import Authenticator
from devcluster.security.authorization import Authorizer
from devcluster.security.certificates import Authority, encode
from devcluster.storage.objects import Objects
from devcluster.storage.store import Store
from devcluster.storage.watchers import Watchers
from devcluster.webhooks.admitted import AdmittedWrites
from devcluster.webhooks.webhooks import WebhookClient, Webhooks
from ipuhub.certificates import write_private
from ipuhub.process.connections import CountedSite
from ipuhub.process.health import Limits, build_runner
from ipuhub.times import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import TextIO

_DEFAULT_ROLES: Final = Path(__file__).parent / "security" / "default-roles.yaml"
# Our own file, so libyaml may read it: the pure Python loader takes half of a start's CPU for it.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def create_access_rules(objects: Objects) -> None:
    """Create the default ClusterRoles and bindings that are missing."""
    text = _DEFAULT_ROLES.read_text(encoding="utf-8")
    for manifest in yaml.load_all(text, Loader=_Loader):  # it is a safe loader
        kind, metadata = BY_KIND[manifest["apiVersion"], manifest["kind"]], manifest["metadata"]
        if objects.store.get(kind.resource_name, "", metadata["name"]) is None:
            metadata["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults"}
            objects.create(kind, "", manifest)


log = structlog.get_logger(__name__)
AUTHORIZATIONS = ("allow-all", "rbac")
_STOP_SECONDS = 2.0


class DevClusterError(RuntimeError):
    """The cluster cannot start; the message says why."""


class DevCluster:
    """A Kubernetes API on this machine; its state is in `directory` and survives kill -9.

    `port` 0 takes a free port, `history` is the number of changes that watches can resume from,
    `authorization` is "rbac" (the stored roles decide about requests) or "allow-all",
    `clock` gives the time in objects and tokens.
    """

    def __init__(
        self,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        history: int = 10_000,
        authorization: str = "allow-all",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if not ipaddress.ip_address(host).is_loopback:
            raise DevClusterError(
                f"{host} is not a loopback address: the embedded API is an instrument for "
                "one machine and must not be reachable from other machines"
            )
        if authorization not in AUTHORIZATIONS:
            known = ", ".join(AUTHORIZATIONS)
            raise DevClusterError(f"{authorization} is no way to authorize: choose one of {known}")
        self._directory, self._host, self._port = directory, host, port
        self._authorization = authorization
        self._history, self._clock = history, clock
        self._runner: web.AppRunner | None = None
        self._lock: TextIO | None = None

    @property
    def url(self) -> str:
        """Return the server's address, `https://127.0.0.1:PORT`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{host}:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._directory / "admin.kubeconfig"

    async def start(self) -> None:
        """Open the state, listen, write the kubeconfig. DevClusterError when it is in use."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        self._authority = Authority(self._directory / "pki")
        self._store = Store(self._directory / "objects.sqlite", history=self._history)
        registry = Registry(self._store)
        objects = Objects(self._store, registry, self._clock)
        self._watchers = Watchers(self._store)
        authenticator = Authenticator(self._store, self._directory / "pki", self._clock)
        self._webhook_client = WebhookClient()
        authorizer = Authorizer(
            self._store,
            is_on=self._authorization == "rbac",
            used_file=self._directory / "rights-used.txt",
        )
        self._nodes = NodeLink(self._store, self._authority, self._directory / "pki")
        webhooks = Webhooks(self._store, self._webhook_client)
        self._api = Api(
            self._store,
            registry,
            objects,
            AdmittedWrites(objects, webhooks, authorizer),
            self._watchers,
            authenticator,
            authorizer,
            self._nodes,
            self._clock,
        )
        namespaces = Namespaces(objects, self._authority.ca_pem.decode())
        namespaces.create_initial()
        create_access_rules(objects)
        self._controllers = Controllers(objects, namespaces, GarbageCollector(objects))
        self._background = asyncio.create_task(self._controllers.run())
        await self._listen()
        log.info("embedded Kubernetes API ready", url=self.url, revision=self._store.revision)

    async def stop(self) -> None:
        """End watches and connections and close the state."""
        if self._runner is None:
            return
        self._watchers.close()
        await self._runner.cleanup()
        self._runner = None
        self._background.cancel()
        with suppress(asyncio.CancelledError):
            await self._background
        await self._webhook_client.close()
        await self._nodes.close()
        self._store.close()
        if self._lock is not None:
            self._lock.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        return await handle(self._api, request)

    async def _listen(self) -> None:
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = build_runner(
            app,
            shutdown_seconds=_STOP_SECONDS,
            # As a real API server; each watch is a connection with a request.
            limits=Limits(silence_seconds=90, connections=100_000),
            handler_cancellation=True,  # ends the watch of a client that went away
            auto_decompress=True,
        )
        await self._runner.setup()
        hosts = (self._host, "localhost", "127.0.0.1", "::1", "kubernetes.default.svc")
        context = self._authority.server_context(tuple(dict.fromkeys(hosts)))
        site = CountedSite(self._runner, self._host, self._port, context)
        try:
            await site.start()
        except OSError as error:
            raise DevClusterError(f"cannot listen on {self.url}: {error.strerror}") from error
        self._port = self._runner.addresses[0][1]
        admin = self._authority.issue("kubernetes-admin", ("system:masters",))
        credentials = {
            "client-certificate-data": encode(admin.certificate),
            "client-key-data": encode(admin.key),
        }
        config = self._authority.kubeconfig(self.url, "kubernetes-admin", credentials)
        write_private(self.kubeconfig, config)

    def _take_lock(self) -> None:
        self._lock = (self._directory / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise DevClusterError(
                f"another process serves the cluster in {self._directory}"
            ) from None
