"""glue: `manage.py run_demo_load`: a stream of sample jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from devcluster.demo.load import DemoLoad, LoadOptions
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.process import logs
from ipuhub.process.runtime import stop_event

if TYPE_CHECKING:
    from argparse import ArgumentParser

_DEMO = settings.DEMO_FOLDER / "kubeconfig"


class Command(BaseCommand):
    help = (
        "Submits sample IPUJobs of different sizes, namespaces, groups, outcomes and durations "
        "until Ctrl-C. Meant for the demo; on another cluster its nodes must be stand-ins."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add, default = parser.add_argument, LoadOptions()
        demo = str(_DEMO) if _DEMO.exists() else ""
        add("--kubeconfig", default=settings.KUBECONFIG or demo, help="default: the demo's")
        add(
            "--pause",
            type=_positive,
            default=default.pause_seconds,
            help="seconds between jobs; default: %(default)s",
        )
        add(
            "--alive",
            type=_natural,
            default=default.alive,
            help="unfinished jobs at most; default: %(default)s",
        )
        add(
            "--kept",
            type=_natural,
            default=default.kept,
            help="finished jobs that are kept; default: %(default)s",
        )
        add(
            "--shortest",
            type=_positive,
            default=default.shortest_seconds,
            help="seconds of the shortest run; default: %(default)s",
        )
        add(
            "--longest",
            type=_positive,
            default=default.longest_seconds,
            help="seconds of the longest run; default: %(default)s",
        )
        add("--jobs", type=_natural, default=0, help="end after so many; 0: until Ctrl-C")
        add("--seed", type=int, default=default.seed, help="the same number: the same stream")

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            load = read_options(options)
            client = KubeClient(load_config(options["kubeconfig"]), user_agent="ipuhub-demo-load")
            counts = asyncio.run(_run(client, load))
        except (ApiError, ConfigError, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"submitted {counts['submitted']} jobs, deleted {counts['deleted']}")


def read_options(options: dict[str, Any]) -> LoadOptions:
    """Make the stream's options of the command's. Raises ValueError for what contradicts itself."""
    if options["shortest"] > options["longest"]:
        raise ValueError(
            f"--shortest {options['shortest']:g} is more than --longest {options['longest']:g}"
        )
    return LoadOptions(
        pause_seconds=options["pause"],
        alive=options["alive"],
        kept=options["kept"],
        shortest_seconds=options["shortest"],
        longest_seconds=options["longest"],
        jobs=options["jobs"],
        seed=options["seed"],
    )


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


async def _run(client: KubeClient, options: LoadOptions) -> dict[str, int]:
    """Run until SIGTERM or SIGINT; return the counts."""
    stop = stop_event()
    async with client:
        load = DemoLoad(client, options)
        await load.run(stop)
        return load.counts
