"""glue: `manage.py run_vipu_proxy`: runs the V-IPU Proxy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub import composition
from ipuhub.env import port_number
from ipuhub.kube.errors import ApiError
from ipuhub.kube.leaderelection import LeadershipLost, LeaseHeld
from ipuhub.process import runtime
from partitions.configured import configured
from partitions.errors import InvalidControllers, TrackerUnavailable
from partitions.proxy.process import serve, sweep_once

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
            "--port", type=port_number, default=settings.PROXY_PORT, help="default: %(default)s"
        )
        parser.add_argument(
            "--once",
            action="store_true",
            help="compare tracker and controllers once, finish unfinished partitions and exit; "
            "fails while another proxy holds the Lease",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        work = partial(run_vipu_proxy, options["host"], options["port"], once=options["once"])
        refusals = (ApiError, InvalidControllers, TrackerUnavailable)
        try:
            composition.run(work, *refusals, runner=runtime.run)
        except LeaseHeld as error:
            raise CommandError(
                f"{error}. That proxy already compares the tracker; stop it before you use --once"
            ) from error
        except LeadershipLost as error:
            raise CommandError(f"{error}. The new leader finishes unfinished partitions") from error


async def run_vipu_proxy(host: str, port: int, *, once: bool) -> None:
    """Serve until SIGTERM or SIGINT, or sweep once."""
    options = configured(host, port)
    await (sweep_once(options) if once else serve(options))
