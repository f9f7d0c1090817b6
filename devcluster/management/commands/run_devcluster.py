"""glue: `manage.py run_devcluster`: the embedded Kubernetes API for the demo and the tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from devcluster.server import AUTHORIZATIONS, DevCluster, DevClusterError
from ipuhub.certificates import write_private
from ipuhub.env import port_number
from ipuhub.process import logs
from ipuhub.process.runtime import return_free_memory, stop_event

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    # Checks import the web pages, which this process must not need.
    requires_system_checks = ()
    help = "Serves a Kubernetes API on this machine, for the demo and the tests; never offer it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dir", type=Path, required=True, help="folder of the state")
        parser.add_argument(
            "--port", type=port_number, default=6443, help="0: any free port; default: %(default)s"
        )
        parser.add_argument("--kubeconfig", type=Path, help="where to write the kubeconfig")
        parser.add_argument(
            "--authorization",
            choices=AUTHORIZATIONS,
            default=AUTHORIZATIONS[0],
            help="rbac: the stored roles decide about requests",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        return_free_memory()
        same = {name: options[name] for name in ("port", "authorization")}
        cluster = DevCluster(options["dir"], **same)
        try:
            asyncio.run(_serve(cluster, options["kubeconfig"]))
        except DevClusterError as error:
            raise CommandError(str(error)) from error


async def _serve(cluster: DevCluster, kubeconfig: Path | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = stop_event()
    await cluster.start()
    try:
        if kubeconfig is not None:
            kubeconfig.parent.mkdir(parents=True, exist_ok=True)
            write_private(kubeconfig, cluster.kubeconfig.read_bytes())
        await stop.wait()
    finally:
        await cluster.stop()
