"""io: `manage.py demo`: the whole product as separate processes on one machine."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devcluster.demo.ports import PortClaims, choose_port, read_ports
from devcluster.demo.postgres import EmbeddedPostgres
from devcluster.demo.processes import ACCOUNTS, AGENT_PORTS, NAMESPACE, PORTS, Processes
from devcluster.demo.supervisor import NotReadyError, Supervisor
from devcluster.demo.vipufleet import controllers_of, ports_of
from ipuhub.concurrency import wait_set
from ipuhub.process.runtime import stop_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from devcluster.demo.forks import ForkServer
    from devcluster.demo.logs import ProcessLogs
    from devcluster.demo.vipufleet import DemoController
    from ipuhub.kube.client import KubeClient

# What a user of jobs and pages needs; the others follow, and do not slow these down.
_NEEDED: Final = ("kubelet", "webhooks", "proxy", "operator", "web")
# What lives here must come up while no webhook answers.
_UNASKED: Final = ("kube-system", NAMESPACE)
_SHOWN_CONTROLLERS: Final = 4  # of a large fleet: a screenful stays a screenful


class DemoError(RuntimeError):
    """The demo cannot start; the message says why and what to do."""


@dataclass
class Demo:
    """State folder, ports and processes of one demo.

    `meters`: usage is recorded and reported. `is_secure`: V-IPU has certificates, users, and keys
    for the pods of jobs. Without `logs` the processes print on the terminal.
    """

    directory: Path
    nodes: int = 4
    machines: int = 8
    runs_commands: bool = False
    meters: bool = True
    is_fleet: bool = False
    is_secure: bool = False
    say: Callable[[str], None] = print
    ports: dict[str, int] = field(default_factory=dict)
    supervisor: Supervisor = field(default_factory=Supervisor)
    logs: ProcessLogs | None = None
    forks: ForkServer | None = None
    _lock: TextIO | None = None
    _claims: PortClaims = field(default_factory=PortClaims)

    @property
    def processes(self) -> Processes:
        """Return the processes that can be started on the folder and ports."""
        return Processes(
            self.directory,
            self.ports,
            self.nodes,
            self.machines,
            runs_commands=self.runs_commands,
            meters=self.meters,
            is_fleet=self.is_fleet,
            is_secure=self.is_secure,
        )

    @property
    def postgres(self) -> EmbeddedPostgres:
        """The database server."""
        return EmbeddedPostgres(self.directory / "postgres", self.ports["PostgreSQL"])

    async def run(self) -> None:
        """Start everything, print where it is, and keep it up until SIGINT or SIGTERM."""
        started = time.monotonic()
        self.take_lock()
        if self.logs is not None:
            folder = _shown(self.logs.directory)
            self.say(f"Starting IPUHub; logs are in {folder}, --logs shows them here")
        stop = stop_event()
        starting = asyncio.create_task(self.start())
        stopping = asyncio.create_task(stop.wait())
        tasks = [starting]
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self.say(self.summary(time.monotonic() - started))
                if self.logs is not None:
                    self.logs.show = self.supervisor.say
                tasks.append(asyncio.create_task(self.start_followers()))
                await self._keep_credentials_fresh(stop)
        finally:
            for task in tasks:
                task.cancel()
            self.say("stopping ...")
            if self.logs is not None:
                self.logs.show = None
            await self.supervisor.stop()
            if self.forks is not None:
                self.forks.close()
            self._claims.close()
            if self.logs is not None:
                self.logs.close()
            self.say("stopped; the state stays in " + _shown(self.directory))

    def take_lock(self) -> None:
        """Refuse a second demo on the same folder."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"a demo already runs on {_shown(self.directory)}: stop it with Ctrl-C first"
            ) from None

    async def start(self) -> None:
        """Start the processes as early as what they need allows; return when all serve."""
        if self.forks is not None:
            self.supervisor.start(self.forks.process())
        self._choose_ports()
        self.supervisor.start(self.processes.api())
        if (secure := self.processes.secure_vipu) is not None:
            await asyncio.to_thread(secure.prepare, self.processes.controllers, self.ports)
        self.supervisor.start(self.processes.vipu_agents())
        servers = self.processes.vipu_servers()
        for server in servers:
            self.supervisor.start(server)
        await asyncio.gather(self._start_web(), self._start_cluster())
        await self._wait_ready(*_NEEDED, *(server.name for server in servers))

    async def _wait_ready(self, *names: str) -> None:
        """Wait until these processes serve, and print which does. Raise NotReadyError."""
        await asyncio.gather(*map(self._wait_one, names))

    async def _wait_one(self, name: str) -> None:
        try:
            await self.supervisor.wait_ready(name)
        except NotReadyError:
            for line in self.logs.tail(name) if self.logs else ():
                self.supervisor.say(name, line)
            raise
        if self.logs is not None:
            self.say(f"  {name} is ready")

    async def start_followers(self) -> None:
        """Start what records and reports; a job and a page do without them meanwhile."""
        if not self.meters:
            self.say("  Usage is off (USAGE_ENABLED): nothing is recorded.")
            return
        url = self.postgres.url
        self.supervisor.start(self.processes.prober(url))
        self.supervisor.start(self.processes.monitor(url))
        self.supervisor.start(self.processes.worker(url))
        try:
            await self.supervisor.wait_ready("prober")
            self.say("  Metering is on: what runs is recorded.")
        except NotReadyError as error:
            self.say(f"  PROBLEM: {error}; until then nothing is recorded.")

    async def _start_web(self) -> None:
        postgres = self.postgres
        await asyncio.to_thread(postgres.stop_leftover)
        await asyncio.to_thread(postgres.prepare)
        self.supervisor.start(self.processes.postgres(postgres))
        await self._wait_ready("postgres")
        self.supervisor.start(self.processes.web(postgres.url))

    async def _start_cluster(self) -> None:
        # Imported while the API server starts: it takes as long as that.
        from devcluster.demo import cluster
        from devcluster.demo.webhooks import apply_configurations, renew_certificate

        processes, start = self.processes, self.supervisor.start
        await self._wait_ready("kube-api")
        authority = renew_certificate(processes.pki, processes.webhook_certificate)
        async with self._administrator() as client:
            more = [cluster.PROCESS_MODE_FILE] if self.runs_commands else []
            more += [cluster.KEYS_FILE] if self.is_secure else []
            for path in (cluster.ACCESS_FILE, cluster.ACTIONS_FILE, cluster.STAND_INS_FILE, *more):
                await cluster.apply_file(client, path)
            for account in ACCOUNTS:
                await cluster.write_account_kubeconfig(
                    client, processes.kubeconfig, processes.accounts, f"{NAMESPACE}/{account}"
                )
            for process in (processes.kubelet(), processes.webhooks(), processes.proxy()):
                start(process)
            # Before the CRD: no job is ever made without being looked at.
            await apply_configurations(client, authority, self.ports["webhooks"], _UNASKED)
            await cluster.apply_file(client, cluster.CRD_FILE)
        start(processes.operator())

    def _administrator(self) -> KubeClient:
        """A client of the demo's own, with all rights."""
        from ipuhub.kube.client import KubeClient
        from ipuhub.kube.config import load_config

        return KubeClient(load_config(str(self.processes.kubeconfig)))

    def summary(self, seconds: float) -> str:
        """Say where everything is."""
        password = self.processes.admin_password
        first = self.processes.controllers[0]
        vipu, admin = (self._command(name, first) for name in ("vipu", "vipu-admin"))
        agent, metrics = self.ports["V-IPU agents"], self.ports["V-IPU metrics"]
        more, pages = self._more_controllers(), f"http://localhost:{metrics}/metrics"
        return f"""
  IPUHub is up ({seconds:.1f} s).

    dashboard   http://localhost:{self.ports["web"]}   (user admin, password {password})
    V-IPU Proxy http://localhost:{self.ports["proxy"]}/stats
    V-IPU       {vipu} list partitions
                {admin} list agents
{more}    IPU metrics {pages}   (ag0; the agents listen from port {agent} on)
    kubectl     export KUBECONFIG={self.processes.kubeconfig}

  Try:  kubectl apply -f examples/single-gcd-sample.yaml && kubectl get ipujobs -w
  Ctrl-C stops everything; the state stays in {_shown(self.directory)} (make demo-clean removes it).
"""

    def _command(self, program: str, controller: DemoController) -> str:
        """`vipu` or `vipu-admin` with what leads it to a controller."""
        secure, is_admin = self.processes.secure_vipu, program == "vipu-admin"
        purpose = controller.admin_purpose if is_admin else controller.purpose
        where = f"-H localhost --api-port {self.ports[purpose]}"
        if secure is not None:
            where = f"--config {_shown(secure.configuration(program, controller))}"
        return f"{_shown(Path(sys.executable).parent / program)} {where}"

    def _more_controllers(self) -> str:
        """Return how users and administrators reach a fleet's further controllers."""
        others = self.processes.controllers[1:]
        lines = [
            f"{self._command(program, each)} {question}"
            for each in others[: _SHOWN_CONTROLLERS - 1]
            for program, question in (("vipu", "list partitions"), ("vipu-admin", "list agents"))
        ]
        if (rest := len(others) - _SHOWN_CONTROLLERS + 1) > 0:
            where = _shown(self.directory / "ports.json")
            lines.append(f"and {rest} more controllers, whose ports are in {where}")
        return "".join(f"                {line}\n" for line in lines)

    def _choose_ports(self) -> None:
        taken: set[int] = set()
        path = self.directory / "ports.json"
        before = read_ports(path)
        controllers = controllers_of(self.machines, is_fleet=self.is_fleet)
        addresses = {each.purpose for each in controllers}
        for purpose, wanted in (PORTS | ports_of(controllers)).items():
            # Its address is the V-IPU controller's name in the tracker: at another address it would
            # be another controller, and a stranger's at the old address would be asked for our
            # partitions.
            must = before.get(purpose) if purpose in addresses else None
            port = choose_port(purpose, must or wanted, taken, self._claims.take)
            if must and port.number != must:
                raise DemoError(
                    f"port {must}, at which this demo's V-IPU controller has always listened, is "
                    "taken: stop what listens there, or start with --dir and another folder"
                )
            self.ports[purpose] = port.number
            if port.notice:
                self.say(port.notice)
        for purpose, wanted in AGENT_PORTS.items():
            port = choose_port(purpose, wanted, taken, self._claims.take, self.machines)
            self.ports[purpose] = port.number
            if port.notice:
                self.say(port.notice)
        # Of controllers that do not run now, too: a fleet may be started again later.
        path.write_text(json.dumps(before | self.ports), encoding="ascii")

    async def _keep_credentials_fresh(self, stop: asyncio.Event) -> None:
        """Renew tokens, and the webhooks' certificate when it is time, until `stop` is set."""
        from devcluster.demo.cluster import TOKEN_SECONDS, refresh_token
        from devcluster.demo.webhooks import renew_certificate

        processes = self.processes
        while not await wait_set(stop, TOKEN_SECONDS / 2):
            renew_certificate(processes.pki, processes.webhook_certificate)
            async with self._administrator() as client:
                for account in ACCOUNTS:
                    await refresh_token(client, processes.accounts, f"{NAMESPACE}/{account}")


def _shown(path: Path) -> str:
    """Return `path` relative to the current folder if it is inside it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
