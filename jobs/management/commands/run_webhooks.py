"""glue: `manage.py run_webhooks`, the admission webhooks of IPUJobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub import composition
from ipuhub.process.health import Limits, build_runner, listening
from ipuhub.process.process import Process
from ipuhub.process.runtime import until_stopped
from jobs import management
from jobs.ipujob.podschema import read_pod_template
from jobs.webhooks.server import WEBHOOKS, Certificate, WebhookRules, build_app

RELOAD_SECONDS = 5.0


class Command(BaseCommand):
    requires_system_checks = ()  # they would load the web pages
    help = "Serves the admission webhooks of IPUJobs over TLS. Runs until SIGTERM."

    def handle(self, *_args: Any, **_options: Any) -> None:
        composition.run(run_webhooks())


async def run_webhooks() -> None:
    """Serve until SIGTERM or SIGINT.

    Raises CommandError without a certificate, ListenError when a port is taken.
    """
    certificate = open_certificate()
    process = Process(WEBHOOKS)
    process.health.ask("certificate", lambda: certificate.problem)
    process.metrics.at_scrape(certificate.fill_metrics)
    # The application bounds bodies itself.
    runner = build_runner(build_app(webhook_rules()), limits=Limits(bodies_bytes=0))
    address = (settings.WEBHOOK_HOST, settings.WEBHOOK_PORT, "IPUHUB_WEBHOOK_PORT")
    async with (
        composition.lonely_metrics_guard("ipuhub-webhooks") as guard,
        composition.serving(process, guard),
        listening(runner, *address, certificate.context),
    ):
        await until_stopped(certificate.follow(RELOAD_SECONDS))


def open_certificate() -> Certificate:
    """The certificate of the settings; raises CommandError when there is none."""
    files = (settings.WEBHOOK_CERTIFICATE_PATH, settings.WEBHOOK_KEY_PATH)
    if not all(files):
        raise CommandError("set IPUHUB_WEBHOOK_CERTIFICATE_PATH and IPUHUB_WEBHOOK_KEY_PATH")
    try:
        return Certificate(*(Path(path) for path in files))
    except OSError as error:  # an unreadable file, or (ssl.SSLError) no usable pair
        raise CommandError(f"no usable certificate in {' and '.join(files)}: {error}") from error


def webhook_rules() -> WebhookRules:
    """The webhooks' part of the settings."""
    return WebhookRules(management.privileges(), read_pod_template(), management.session_limits())
