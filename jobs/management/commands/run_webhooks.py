"""glue: `manage.py run_webhooks`: runs the admission webhooks of IPUJobs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub import composition
from ipuhub.process.health import Limits, build_runner, listening
from ipuhub.process.process import Process
from ipuhub.process.runtime import until_stopped
from ipuhub.times import utc_now
from jobs import management
from jobs.ipujob.podschema import read_pod_template
from jobs.webhooks.keeper import KeeperOptions, KeptCertificate
from jobs.webhooks.server import WEBHOOKS, Certificate, GracefulShutdown, WebhookRules, build_app

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

NAME = "ipuhub-webhooks"
RELOAD_SECONDS = 5.0


class Command(BaseCommand):
    requires_system_checks = ()  # they would load the web pages
    help = "Serves the admission webhooks of IPUJobs over TLS. Runs until SIGTERM."

    def handle(self, *_args: Any, **_options: Any) -> None:
        composition.run(run_webhooks)


async def run_webhooks() -> None:
    """Serve until SIGTERM or SIGINT.

    Raises CommandError without a certificate, ListenError when a port is taken, and with a
    certificate in a Secret what `composition.running` raises.
    """
    given = settings.WEBHOOK_CERTIFICATE_PATH or settings.WEBHOOK_KEY_PATH
    if settings.WEBHOOK_SECRET and given:
        raise CommandError(
            "IPUHUB_WEBHOOK_SECRET and IPUHUB_WEBHOOK_CERTIFICATE_PATH are both set: unset one of "
            "them"
        )
    await (_run_with_secret() if settings.WEBHOOK_SECRET else _run_with_files())


async def _run_with_files() -> None:
    certificate = open_certificate()
    process = Process(WEBHOOKS)
    process.health.ask("certificate", lambda: certificate.problem)
    process.metrics.at_scrape(certificate.fill_metrics)
    async with (
        composition.standalone_metrics_guard(NAME) as guard,
        composition.serving(process, guard),
        answering(certificate.context, process),
    ):
        await until_stopped(certificate.follow(RELOAD_SECONDS))


async def _run_with_secret() -> None:
    async with composition.running(NAME, WEBHOOKS, elects=True) as process:
        certificate = KeptCertificate(process.client, keeper_options(), utc_now)
        certificate.note = partial(process.health.note, "webhook configurations")
        process.health.ask("certificate", lambda: certificate.problem)
        process.health.ask("webhook configurations", lambda: certificate.unpublished)
        process.metrics.at_scrape(certificate.fill_metrics)

        async def work() -> None:
            await asyncio.gather(certificate.follow(), process.leadership.lead(certificate.keep))

        async with answering(certificate.context, process):
            await until_stopped(work())


@asynccontextmanager
async def answering(context: ssl.SSLContext, process: Process) -> AsyncIterator[None]:
    """Serve the webhooks where the settings say, and a while longer. Raises ListenError."""
    departure = GracefulShutdown(settings.WEBHOOK_DRAIN_SECONDS)
    process.health.ask("end", lambda: departure.problem)
    app = build_app(webhook_rules(), departure=departure)
    # The application bounds bodies itself.
    runner = build_runner(app, limits=Limits(bodies_bytes=0))
    address = (settings.WEBHOOK_HOST, settings.WEBHOOK_PORT, "IPUHUB_WEBHOOK_PORT")
    async with listening(runner, *address, context):
        yield
        await departure.wait()


def keeper_options() -> KeeperOptions:
    """The settings about the webhooks' own certificate. Raises CommandError."""
    if not settings.WEBHOOK_DNS_NAMES:
        raise CommandError(
            "set IPUHUB_WEBHOOK_DNS_NAMES to the names of the webhooks' Service, for example "
            "ipuhub-webhooks.ipuhub-system.svc"
        )
    return KeeperOptions(
        namespace=settings.NAMESPACE,
        secret=settings.WEBHOOK_SECRET,
        configuration=settings.WEBHOOK_CONFIGURATION,
        names=tuple(settings.WEBHOOK_DNS_NAMES),
    )


def open_certificate() -> Certificate:
    """Return the certificate of the settings; raise CommandError if there is none."""
    files = (settings.WEBHOOK_CERTIFICATE_PATH, settings.WEBHOOK_KEY_PATH)
    if not all(files):
        raise CommandError(
            "set IPUHUB_WEBHOOK_CERTIFICATE_PATH and IPUHUB_WEBHOOK_KEY_PATH, or "
            "IPUHUB_WEBHOOK_SECRET"
        )
    try:
        certificate, key = (Path(path) for path in files)
        return Certificate(certificate, key)
    except OSError as error:  # an unreadable file, or (ssl.SSLError) no usable pair
        raise CommandError(f"no usable certificate in {' and '.join(files)}: {error}") from error


def webhook_rules() -> WebhookRules:
    """The webhooks' part of the settings."""
    return WebhookRules(management.privileges(), read_pod_template(), management.session_limits())
