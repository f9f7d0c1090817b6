"""glue: `manage.py demo`: the whole product on this machine."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from devcluster.demo.forks import ForkServer
from devcluster.demo.logs import ProcessLogs
from devcluster.demo.postgres import PostgresError
from devcluster.demo.run import Demo, DemoError
from devcluster.demo.securevipu import SecureVipuError
from devcluster.demo.supervisor import NotReadyError, Supervisor
from devcluster.demo.vipufleet import controllers_of
from ipuhub.management.demofolder import add_folder_option

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Runs the whole product on embedded defaults until Ctrl-C."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_folder_option(parser)
        parser.add_argument(
            "--nodes", type=int, default=4, help="stand-in Kubernetes nodes; default: %(default)s"
        )
        parser.add_argument(
            "--machines", type=int, default=8, help="IPU-Machines of 4 IPUs; default: %(default)s"
        )
        parser.add_argument(
            "--fleet",
            type=int,
            metavar="N",
            help="instead of --nodes and --machines: N IPU-Machines in racks of 16, a V-IPU "
            "controller and a node for two racks; 64 gives two controllers with two clusters each",
        )
        parser.add_argument(
            "--processes",
            action="store_true",
            help="RUN the commands of pods on THIS MACHINE, as you, instead of simulating them",
        )

        parser.add_argument(
            "--secure",
            action="store_true",
            help="V-IPU with certificates, users, and keys by which the pods of a job reach their "
            "own partition alone",
        )
        parser.add_argument(
            "--logs",
            action="store_true",
            help="print the logs of all processes here; default: into the folder logs, and here "
            "just warnings and errors once all is up",
        )

        parser.add_argument(
            "--exec",
            action="store_true",
            help="start each process by itself, as production does; default: fork the Python "
            "processes from one that has imported their libraries, which takes less CPU and memory",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        fleet = options["fleet"]
        try:
            controllers = controllers_of(fleet or options["machines"], is_fleet=fleet is not None)
        except ValueError as error:
            raise CommandError(f"--fleet: {error}") from error
        folder = options["dir"].absolute()
        logs = None if options["logs"] else ProcessLogs(folder / "logs")
        forks = None if options["exec"] else ForkServer()
        demo = Demo(
            folder,
            options["nodes"] if fleet is None else len(controllers),
            fleet or options["machines"],
            is_fleet=fleet is not None,
            is_secure=options["secure"],
            runs_commands=options["processes"],
            meters=settings.USAGE_ENABLED,
            supervisor=Supervisor(logs=logs.write if logs else None, forks=forks),
            logs=logs,
            forks=forks,
        )
        with contextlib.suppress(KeyboardInterrupt):
            try:
                asyncio.run(demo.run())
            except (DemoError, SecureVipuError, NotReadyError, PostgresError, OSError) as error:
                raise CommandError(str(error)) from error
