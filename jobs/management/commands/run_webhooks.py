"""glue: `manage.py run_webhooks`, the admission webhooks of IPUJobs."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from aiohttp import web
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub.composition import lonely_metrics_guard, serve_health
from ipuhub.process import logs
from ipuhub.process.health import Health, Limits, build_runner
from ipuhub.process.metrics import of_process
from ipuhub.process.metricspage import metrics_route
from ipuhub.process.runtime import until_stopped
from jobs import management
from jobs.ipujob.podschema import read_pod_template
from jobs.operator.metrics import WEBHOOKS
from jobs.webhooks.server import (
    Certificate,
    WebhookMeasures,
    WebhookRules,
    build_app,
    tell_certificate,
)

RELOAD_SECONDS = 5.0


class Command(BaseCommand):
    requires_system_checks = ()  # they would load the web pages
    help = "Serves the admission webhooks of IPUJobs over TLS, until SIGTERM."

    def handle(self, *_args: Any, **_options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        asyncio.run(run_webhooks())


async def run_webhooks() -> None:
    """Serve until SIGTERM or SIGINT. Raises CommandError without a certificate or a free port."""
    certificate = open_certificate()
    health = Health()
    health.ask("certificate", lambda: certificate.problem)
    meters = of_process(WEBHOOKS, health=health)
    tell_certificate(meters, certificate)
    async with contextlib.AsyncExitStack() as stack:
        guard = await stack.enter_async_context(lonely_metrics_guard("ipuhub-webhooks"))
        page = metrics_route(meters, guard)
        stack.push_async_callback((await serve_health(health, page)).cleanup)
        rules = webhook_rules()
        app = build_app(rules, WebhookMeasures(meters, rules.template_schema))
        runner = build_runner(app, limits=Limits(bodies_bytes=0))  # it bounds them itself
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        host, port = settings.WEBHOOK_HOST, settings.WEBHOOK_PORT
        try:
            await web.TCPSite(runner, host, port, ssl_context=certificate.context).start()
        except OSError as error:
            raise CommandError(
                f"cannot listen on {host}:{port} (set IPUHUB_WEBHOOK_PORT): {error.strerror}"
            ) from error
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
