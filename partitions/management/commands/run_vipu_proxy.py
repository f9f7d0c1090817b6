"""glue: `manage.py run_vipu_proxy`, the V-IPU Proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.kube.leaderelection import LeadershipLost, LeaseHeld
from ipuhub.process import logs, runtime
from partitions.configured import configured
from partitions.errors import InvalidControllers, TrackerUnavailable
from partitions.proxy.process import ListenError, serve, sweep_once

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Serves the V-IPU Proxy: partitions for jobs, /stats and /query."
    requires_system_checks = ()  # the proxy needs no database and no templates

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host", default=settings.PROXY_HOST, help="address to listen on; default: %(default)s"
        )
        parser.add_argument(
            "--port", type=int, default=settings.PROXY_PORT, help="default: %(default)s"
        )
        parser.add_argument(
            "--once",
            action="store_true",
            help="compare tracker and controllers once, finish what is unfinished, end; refused "
            "while another proxy holds the Lease",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            proxy = configured(options["host"], options["port"])
            runtime.run(sweep_once(proxy) if options["once"] else serve(proxy))
        except (
            ApiError,
            ConfigError,
            InvalidControllers,
            ListenError,
            TrackerUnavailable,
        ) as error:
            raise CommandError(str(error)) from error
        except LeaseHeld as error:
            raise CommandError(
                f"{error}: that proxy sweeps by itself; stop it before --once"
            ) from error
        except LeadershipLost as error:
            raise CommandError(f"{error}: whoever leads goes on with what is unfinished") from error
