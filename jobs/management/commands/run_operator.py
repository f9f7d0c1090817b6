"""glue: `manage.py run_operator`, the IPU Operator."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import import_string

from ipuhub import composition
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ConfigError
from ipuhub.kube.events import EventRecorder
from ipuhub.kube.token import TokenSource
from ipuhub.process import logs, metrics, metrictable, runtime
from ipuhub.process.health import Health
from ipuhub.process.leadership import Leadership
from ipuhub.process.metricspage import metrics_route
from jobs import management
from jobs.builders.context import PodOptions
from jobs.operator.metrics import OPERATOR, OperatorMeasures, tell_events, tell_operator
from jobs.operator.operator import Operator, OperatorOptions, utc_now
from jobs.operator.partitions import only_while_leading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ipuhub.process.metrics import Meters

COMPONENT = "ipu-operator"
AUDIENCE = "ipuhub-proxy"


class Command(BaseCommand):
    requires_system_checks = ()  # they would load the web pages
    help = "Runs the IPU Operator, which brings IPUJobs to their wanted state, until SIGTERM."

    def handle(self, *_args: Any, **_options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            runtime.run(run_operator())
        except ConfigError as error:
            raise CommandError(str(error)) from error


async def run_operator() -> None:
    """Wire the operator with the settings and run it until SIGTERM or SIGINT.

    Raises ConfigError without credentials and CommandError when the health port is taken.
    """
    health = Health()
    config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
    election = composition.leadership_options(COMPONENT)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(config, user_agent=COMPONENT))
        meters = metrics.of_process(
            metrictable.WITH_LEASE,
            metrictable.WITH_API,
            metrictable.WITH_WATCHES,
            OPERATOR,
            health=health,
        )
        page = metrics_route(meters, composition.metrics_guard(client))
        stack.push_async_callback((await composition.serve_health(health, page)).cleanup)
        proxy = import_string(settings.PROXY_CLIENT)(settings.PROXY_URL, proxy_token(client))
        stack.push_async_callback(proxy.close)
        recorder = EventRecorder(client, COMPONENT, utc_now)
        measures = OperatorMeasures(meters, utc_now)
        options = operator_options()
        leadership = Leadership(client, election)
        partitions = only_while_leading(proxy, lambda: leadership.left_seconds)
        working = (client, partitions, recorder, health, options, measures)
        terms = Terms(lambda: Operator(*working), health)
        tell(meters, client, leadership, terms, recorder)
        health.ask("leader election", lambda: leadership.problem)
        await runtime.until_stopped(leadership.lead(terms.run))


class Terms:
    """A new operator for each term of leadership: what an earlier one has cached is old."""

    def __init__(self, make: Callable[[], Operator], health: Health) -> None:
        self.present = make()
        self._make = make
        self._health = health

    async def run(self) -> None:
        """Work for one term."""
        self.present = self._make()
        with self._health.term():
            await self.present.run()


def tell(
    meters: Meters,
    client: KubeClient,
    leader: Leadership,
    terms: Terms,
    recorder: EventRecorder,
) -> None:
    """Have the metrics filled by those who know."""
    metrics.tell_leadership(meters, leader)
    metrics.tell_calls(meters, client)
    metrics.tell_watches(meters, lambda: terms.present.informers)
    tell_operator(meters, lambda: terms.present)
    tell_events(meters, recorder)


def operator_options() -> OperatorOptions:
    """The operator's part of the settings."""
    return OperatorOptions(
        concurrency=settings.OPERATOR_CONCURRENCY,
        poll_seconds=settings.PARTITION_POLL_SECONDS,
        limits=management.session_limits(),
        privileges=management.privileges(),
        patience=management.patience(),
        pods=PodOptions(
            host_network=settings.HOST_NETWORK,
            launcher_image=settings.LAUNCHER_IMAGE,
            launcher_image_pull_policy=settings.LAUNCHER_IMAGE_PULL_POLICY,
            vipu_timeout_seconds=settings.VIPU_TIMEOUT_SECONDS,
            launcher_wait_seconds=settings.LAUNCHER_WAIT_SECONDS,
            mpi_interfaces=settings.MPI_INTERFACES,
        ),
    )


def proxy_token(client: KubeClient) -> Callable[[], Awaitable[str]]:
    """The given token, else one requested for the own service account and kept fresh."""
    if settings.PROXY_TOKEN or not settings.SERVICE_ACCOUNT:

        async def given() -> str:
            return str(settings.PROXY_TOKEN)

        return given
    return TokenSource(client, settings.SERVICE_ACCOUNT, AUDIENCE)
