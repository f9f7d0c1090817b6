"""glue: the prober process: records pods, jobs and partitions of one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog
from django.conf import settings
from django.utils.module_loading import import_string

from ipuhub import composition, heartbeats, schema
from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.kube.namespaces import ChosenNamespaces, NamespaceGroups
from ipuhub.partition import TrackerPlace
from ipuhub.process.health import Health
from ipuhub.process.leadership import Leadership
from ipuhub.process.runtime import until_stopped
from ipuhub.recording.metrics import RECORDINGS, fill_position_ages
from ipuhub.recording.recording import Recording, RecordingOptions
from ipuhub.recording.store import connection_arguments, holder_of
from ipuhub.text import AuthorTrust
from ipuhub.times import utc_now
from usage.pods.recorder import PodRecorder, PodSelection
from usage.pods.rows import JobOwner
from usage.pods.stamps import confirm_stamps

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Mapping,
        Sequence,
    )
    from datetime import datetime

    import psycopg

    from ipuhub.kube.client import KubeClient
    from ipuhub.recording.recorder import Recorder

log = structlog.get_logger(__name__)
_JOBS = """
SELECT uid, namespace, "group", "user", user_verified FROM jobs_owners WHERE uid = ANY(%s)
"""


def recorded_jobs(cursor: psycopg.Cursor[Any], jobs: Iterable[str]) -> dict[str, JobOwner]:
    """Return the owners of those jobs that are recorded, by UID."""
    cursor.execute(_JOBS, [list(jobs)])
    return {uid: JobOwner(*whose) for uid, *whose in cursor.fetchall()}


def owners_of(cursor: psycopg.Cursor[Any], jobs: Iterable[str]) -> dict[str, tuple[str, str, bool]]:
    """Return group, user and whether the user is verified, of recorded jobs, by UID."""
    found = recorded_jobs(cursor, jobs).items()
    return {uid: (job.group, job.user, job.user_verified) for uid, job in found}


def prove_stamps(cursor: psycopg.Cursor[Any], jobs: Collection[str]) -> int:
    """Confirm the stamps of pods that waited for the records of these jobs; return their number."""
    return confirm_stamps(cursor, recorded_jobs, jobs)


class JobsAndPartitions:
    """The recorders of jobs and of partitions, and the tasks that run with them.

    Their apps are known by name only, from the setting RECORDERS. `database` are psycopg's
    arguments, `clock` gives aware UTC times.
    """

    def __init__(
        self,
        client: KubeClient,
        proxy: Any,
        database: Mapping[str, Any],
        clock: Callable[[], datetime],
        place: TrackerPlace,
        authors: AuthorTrust | None = None,
    ) -> None:
        self.groups = NamespaceGroups(client)
        record_jobs = import_string(settings.RECORDERS["jobs"])
        record_partitions = import_string(settings.RECORDERS["partitions"])
        self.jobs = record_jobs(self.groups.group_of, authors, prove_stamps)
        self._held = record_partitions(client, proxy, database, clock, place, self._owners_of)
        self.partitions = self._held.recorder
        self.events = import_string(settings.RECORDERS["events"])(client, database, clock)
        self.acknowledger, self.capacity = self._held.acknowledger, self._held.capacity

    @asynccontextmanager
    async def running(self, patience_seconds: float = 10.0) -> AsyncIterator[None]:
        """Follow namespaces and Events, acknowledge tombstones and poll capacity meanwhile.

        Begins when the namespaces are known, or after `patience_seconds` without them.
        """
        async with asyncio.TaskGroup() as group:
            works = (self.groups.run(), self.events.run(), *self._held.works())
            tasks = [group.create_task(work) for work in works]
            if not await self.groups.wait_known(patience_seconds):
                log.warning("namespaces are not known: each counts as its own group for now")
            yield
            for task in tasks:
                task.cancel()

    def _owners_of(
        self, cursor: psycopg.Cursor[Any], jobs: Sequence[tuple[str, str]]
    ) -> dict[str, tuple[str, str, bool]]:
        """Return the owners of jobs' partitions; a job without a record counts for its
        namespace."""
        owners = {uid: (self.groups.group_of(namespace), "", False) for uid, namespace in jobs}
        return owners | owners_of(cursor, owners)


NAME: Final = "ipuhub-prober"
_PAUSE_SECONDS: Final = 10.0


def build_recorders(
    parts: JobsAndPartitions, chosen: ChosenNamespaces | None
) -> list[Recorder[Any]]:
    """Return the recorders that the settings choose."""
    return [PodRecorder(pod_selection(chosen), recorded_jobs), parts.jobs, parts.partitions]


def build_chosen(client: KubeClient) -> ChosenNamespaces | None:
    """The namespaces that the settings choose by label, if they do.

    Raises ConfigError where they name namespaces, too.
    """
    selector = settings.USAGE_NAMESPACE_SELECTOR.strip()
    if selector and settings.USAGE_NAMESPACES:
        raise ConfigError(
            "USAGE_NAMESPACES and USAGE_NAMESPACE_SELECTOR are both set: unset one of them"
        )
    return ChosenNamespaces(client, selector) if selector else None


def build_parts(client: KubeClient, proxy: Any) -> JobsAndPartitions:
    """Return the recorders of jobs, partitions and capacity, by the settings."""
    place = TrackerPlace(settings.NAMESPACE, settings.TRACKER_CONFIGMAP)
    return JobsAndPartitions(client, proxy, database(), utc_now, place, author_trust())


def pod_selection(chosen: ChosenNamespaces | None) -> PodSelection:
    """The pods to record, by the settings."""
    return PodSelection(
        frozenset(settings.USAGE_NAMESPACES),
        settings.USAGE_ALL_PODS,
        tuple(settings.USAGE_GPU_RESOURCES),
        tuple(settings.USAGE_LABELS),
        chosen,
        has_ipu_requests=not settings.IPU_VISIBILITY,
    )


def author_trust() -> AuthorTrust:
    """Return who sets `ipuhub.io/created-by`, by the settings."""
    return AuthorTrust(
        is_on=settings.TRUST_CREATED_BY, unasked=frozenset({"kube-system", settings.NAMESPACE})
    )


class Prober:
    """Runs one recording for each recorder, on one connection pool to the API server."""

    def __init__(self, client: KubeClient, proxy: Any, health: Health) -> None:
        self._parts = build_parts(client, proxy)
        # A note: without the right to read Events a prober records everything else, and is ready.
        health.note("record job events", lambda: self._parts.events.problem)
        self._chosen = chosen = build_chosen(client)
        plain = recording_options()
        of_pods = replace(plain, chosen=chosen)
        self._recordings = [
            Recording(
                client,
                recorder,
                database(),
                health,
                utc_now,
                of_pods if isinstance(recorder, PodRecorder) else plain,
            )
            for recorder in build_recorders(self._parts, chosen)
        ]
        tracker = self._recordings[-1]
        self._parts.partitions.known_until = lambda: tracker.committed_until

    async def run(self) -> str:
        """Record until cancelled; return once another prober took a watch over, with a sentence
        about it where a person has to end that."""
        async with self._parts.running(), self._following(), asyncio.TaskGroup() as group:
            tasks = [group.create_task(recording.run()) for recording in self._recordings]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:  # one prober records everything or nothing
                task.cancel()
        return next((recording.rival for recording in self._recordings if recording.rival), "")

    async def list_once(self) -> None:
        """Commit one full list for each recorder that can; raises ApiError for the last other.

        Raises Fenced when another prober took a watch over meanwhile.
        """
        failed: ApiError | None = None
        async with self._parts.running(), self._following(patience_seconds=30.0):
            for recording in self._recordings:
                try:
                    await recording.list_once("only listed, by run_prober --once")
                except ApiError as error:
                    log.warning("not listed", watch=recording.name, problem=str(error))
                    failed = error
        if failed is not None:
            raise failed

    @contextlib.asynccontextmanager
    async def _following(self, patience_seconds: float = 0.0) -> AsyncIterator[None]:
        """Follow the chosen namespaces meanwhile; ConfigError if unknown after the patience."""
        if self._chosen is None:
            yield
            return
        task = asyncio.create_task(self._chosen.run())
        try:
            if patience_seconds:
                await self._chosen.wait_known(patience_seconds)
            yield
        except TimeoutError as error:
            raise ConfigError(f"USAGE_NAMESPACE_SELECTOR: {error}") from error
        finally:
            task.cancel()


def database() -> dict[str, Any]:
    """Return the arguments by which the recordings connect to PostgreSQL."""
    return connection_arguments(settings.DATABASES["default"])


def recording_options() -> RecordingOptions:
    """Return the options of a recording that only this replica and its Lease may continue."""
    election = composition.leadership_options(NAME)
    lease = f"{election.namespace}/{election.lease}" if election else ""
    return RecordingOptions(
        holder=holder_of(settings.IDENTITY or socket.gethostname(), lease),
    )


async def keep_recording(
    leadership: Leadership,
    record: Callable[[], Awaitable[str]],
    health: Health,
    pause_seconds: float = _PAUSE_SECONDS,
) -> None:
    """Run `record` whenever this replica leads; after it returns (with a reason), stand for
    election again.

    The pause lets another replica go first, and two replicas without a Lease take turns.
    """

    reason = ""

    async def term() -> None:
        nonlocal reason
        # These checks only count for the replica that records.
        with health.term():
            reason = await record()

    while True:
        await leadership.lead(term)
        log.warning("another prober took over; trying again", seconds=pause_seconds)
        with health.term():
            detail = reason or "another prober took a watch over"
            health.set("recording", ok=False, detail=detail)
            await asyncio.sleep(pause_seconds)


async def run_prober() -> None:
    """Record until SIGTERM or SIGINT.

    Raises what `composition.running` raises, and ConfigError for settings that contradict each
    other.
    """
    async with (
        composition.running(NAME, RECORDINGS, elects=True) as process,
        composition.proxy_client(process.client) as proxy,
    ):
        build_chosen(process.client)  # reports problems now, not once it leads
        process.metrics.at_scrape(fill_position_ages)

        async def record() -> str:
            return await Prober(process.client, proxy, process.health).run()

        # Also while it stands by: without an API server no prober leads, and all of them are alive.
        async with (
            schema.migrating(process.health),
            heartbeats.writing_heartbeats(heartbeats.PROBER, database()),
        ):
            await until_stopped(keep_recording(process.leadership, record, process.health))


async def list_once() -> None:
    """Commit one full list of everything. Raises ApiError, ConfigError, LeaseHeld, LeadershipLost
    and Fenced."""
    async with (
        composition.cluster_client(NAME) as client,
        composition.proxy_client(client) as proxy,
    ):
        prober = Prober(client, proxy, Health())
        await Leadership(client, composition.leadership_options(NAME)).lead_now(prober.list_once)
