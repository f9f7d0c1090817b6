"""glue: `manage.py run_monitor`, which ends the lifetimes of pods whose end nobody saw."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ConfigError
from ipuhub.management import require_usage
from ipuhub.process import logs
from usage.monitor.process import monitor_once, run_monitor

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from ipuhub.kube.credentials import ClusterConfig


class Command(BaseCommand):
    help = "Ends the lifetimes of pods that are gone and that no prober saw go, until SIGTERM."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="go one round and end")

    def handle(self, *_args: Any, **options: Any) -> None:
        require_usage()
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
            if options["once"]:
                self._once(config)
            else:
                asyncio.run(run_monitor(config))
        except ConfigError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            where = f"{settings.HEALTH_HOST}:{settings.HEALTH_PORT} (set IPUHUB_HEALTH_PORT)"
            raise CommandError(f"cannot listen on {where}: {error.strerror}") from error

    def _once(self, config: ClusterConfig) -> None:
        tally = asyncio.run(monitor_once(config))
        self.stdout.write(
            f"{tally.checked} checked, {tally.present} there, {tally.closed} ended, "
            f"{tally.left} left to the prober or a later round"
        )
        if tally.problem:
            raise CommandError(f"not all could be judged: {tally.problem}")
