"""glue: `manage.py run_operator`: runs the IPU Operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand

from ipuhub import composition
from ipuhub.kube.events import EventRecorder
from ipuhub.process import runtime
from ipuhub.times import utc_now
from jobs import management
from jobs.builders.pods import PodOptions
from jobs.operator.metrics import EVENTS_DROPPED, OPERATOR, UNWRITTEN
from jobs.operator.operator import Operator, OperatorOptions
from jobs.operator.partitions import only_while_leading

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.process.health import Health

COMPONENT = "ipu-operator"


class Command(BaseCommand):
    requires_system_checks = ()  # they would load the web pages
    help = "Runs the IPU Operator, which reconciles IPUJobs. Runs until SIGTERM."

    def handle(self, *_args: Any, **_options: Any) -> None:
        composition.run(run_operator, runner=runtime.run)


async def run_operator() -> None:
    """Run the operator until SIGTERM or SIGINT. Raises what `composition.running` raises."""
    async with (
        composition.running(COMPONENT, OPERATOR, elects=True) as process,
        composition.proxy_client(process.client) as proxy,
    ):
        leadership = process.leadership
        recorder = EventRecorder(process.client, COMPONENT, utc_now)
        partitions = only_while_leading(proxy, lambda: leadership.left_seconds)
        working = (process.client, partitions, recorder, process.health, operator_options())
        terms = OperatorTerms(lambda: Operator(*working), process.health)

        process.follow(lambda: terms.present.informers)
        process.metrics.at_scrape(terms.fill_metrics)
        process.metrics.at_scrape(lambda: EVENTS_DROPPED.count_up({UNWRITTEN: recorder.dropped}))
        await runtime.until_stopped(leadership.lead(terms.run))


class OperatorTerms:
    """A new operator for each term of leadership, because caches of an earlier term are stale."""

    def __init__(self, make: Callable[[], Operator], health: Health) -> None:
        self.present = make()
        self._make = make
        self._health = health

    def fill_metrics(self) -> None:
        """Bring the metrics of the present term up to date."""
        self.present.fill_metrics()

    async def run(self) -> None:
        """Work for one term."""
        self.present = self._make()
        with self._health.term():
            await self.present.run()


def operator_options() -> OperatorOptions:
    """Return the operator's part of the settings."""
    return OperatorOptions(
        concurrency=settings.OPERATOR_CONCURRENCY,
        poll_seconds=settings.PARTITION_POLL_SECONDS,
        limits=management.session_limits(),
        privileges=management.privileges(),
        patience=management.patience(),
        namespaces=frozenset(settings.JOB_NAMESPACES),
        pods=PodOptions(
            host_network=settings.HOST_NETWORK,
            launcher_image=settings.LAUNCHER_IMAGE,
            launcher_image_pull_policy=settings.LAUNCHER_IMAGE_PULL_POLICY,
            launcher_pull_secrets=tuple(settings.LAUNCHER_PULL_SECRETS),
            vipu_timeout_seconds=settings.VIPU_TIMEOUT_SECONDS,
            launcher_wait_seconds=settings.LAUNCHER_WAIT_SECONDS,
            mpi_interfaces=settings.MPI_INTERFACES,
            scheduler_name=settings.SCHEDULER_NAME,
        ),
    )
