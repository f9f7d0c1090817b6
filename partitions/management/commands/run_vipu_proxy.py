"""glue: `manage.py run_vipu_proxy`, the V-IPU Proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub import logs, processes
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ConfigError
from partitions.controllers import PartitionSettings, PlacementRule
from partitions.errors import InvalidControllers, TrackerUnavailable
from partitions.proxy.run import ListenError, ProxyOptions, serve, sweep_once
from partitions.service import ServiceOptions
from partitions.sweep import SweepOptions

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Serves the V-IPU Proxy: partitions for jobs, /stats and /query."
    requires_system_checks = ()  # the proxy needs no database and no templates

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default=settings.PROXY_HOST)
        parser.add_argument("--port", type=int, default=settings.PROXY_PORT)
        parser.add_argument(
            "--once",
            action="store_true",
            help="compare tracker and controllers once, finish what is unfinished, and end",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            proxy = _options(options["host"], options["port"])
            asyncio.run(sweep_once(proxy) if options["once"] else serve(proxy))
        except (ConfigError, InvalidControllers, ListenError, TrackerUnavailable) as error:
            raise CommandError(str(error)) from error


def _options(host: str, port: int) -> ProxyOptions:
    return ProxyOptions(
        cluster=load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT),
        namespace=settings.NAMESPACE,
        election=processes.leadership_options("ipuhub-proxy"),
        metrics_token=settings.METRICS_TOKEN,
        host=host,
        port=port,
        tracker=settings.TRACKER_CONFIGMAP,
        controllers=settings.VIPU_CONTROLLERS,
        controllers_path=settings.VIPU_CONTROLLERS_PATH,
        deadline_seconds=settings.VIPU_DEADLINE_SECONDS,
        defaults=PartitionSettings(
            cluster_id=settings.VIPU_CLUSTER_NAME,
            allocation_id=settings.VIPU_ALLOCATION_ID,
            num_gcds=settings.VIPU_NUM_GCDS,
            num_replicas=settings.VIPU_NUM_REPLICAS,
            reconfigurable=settings.VIPU_RECONFIGURABLE,
        ),
        service=ServiceOptions(rule=PlacementRule(settings.PLACEMENT)),
        sweep=SweepOptions(
            settings.SWEEP_SECONDS,
            settings.TRACKER_TOMBSTONE_SECONDS,
            settings.TRACKER_RECORDER,
        ),
    )
