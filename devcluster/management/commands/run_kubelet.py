"""glue: `manage.py run_kubelet`: the stand-in nodes of the demo and the tests."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from devcluster.kubelet.options import Durations, StandInOptions
from devcluster.kubelet.standin import StandInNodes
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import ConfigError, load_config
from ipuhub.process import logs
from ipuhub.process.runtime import return_free_memory, until_stopped
from ipuhub.quantities import thousandths

_SAME_NAMES = ("nodes", "prefix", "cpu", "memory", "pods", "scheduler_name", "claims")


class Command(BaseCommand):
    requires_system_checks = ()  # they would load the web pages
    help = (
        "Registers simulated nodes and drives the pods on them by their sim/ annotations. "
        "Brings its own scheduler and volume binder."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add, seconds = parser.add_argument, Durations()
        add("--kubeconfig", default=settings.KUBECONFIG, help="of the cluster that gets the nodes")
        add("--nodes", type=int, default=4, help="how many nodes; default: %(default)s")
        add(
            "--label",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="{i}: the node's number",
        )
        add(
            "--processes",
            type=Path,
            metavar="DIR",
            help="RUN the containers' commands on THIS MACHINE, with their files below DIR",
        )
        for name in ("launcher", "worker", "pod"):
            default, what = getattr(seconds, name), f"run time of a {name}; default: %(default)s"
            add(f"--{name}-seconds", type=float, default=default, help=what)
        of_each, usual = "of each node; default: %(default)s", StandInOptions()
        add("--cpu", default=usual.cpu, help=f"cores {of_each}")
        add("--memory", default=usual.memory, help=f"memory {of_each}")
        add("--pods", type=int, default=usual.pods, help=f"most pods {of_each}")
        add("--prefix", default="node-", help="names are PREFIX and a number")
        add("--scheduler-name", default="default-scheduler", help="whose pods to schedule")
        claims = "bind volume claims"
        add("--claims", action=argparse.BooleanOptionalAction, default=True, help=claims)
        add("--startup-seconds", type=float, default=0.0, help="from binding to running")

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            config = load_config(options["kubeconfig"], settings.KUBE_CONTEXT)
            stand_in = read_options(options)
        except (ConfigError, ValueError) as error:
            raise CommandError(str(error)) from error
        return_free_memory()
        asyncio.run(_run(KubeClient(config, user_agent="ipuhub-kubelet"), stand_in))


def read_options(options: dict[str, Any]) -> StandInOptions:
    """Make the nodes' options of the command's. Raises ValueError for what cannot be read."""
    for name in ("cpu", "memory"):
        thousandths(options[name])
    return StandInOptions(
        **{name: options[name] for name in _SAME_NAMES},
        labels=_read_pairs(options["label"]),
        processes=options["processes"],
        durations=Durations(
            launcher=options["launcher_seconds"],
            worker=options["worker_seconds"],
            pod=options["pod_seconds"],
            startup=options["startup_seconds"],
        ),
    )


def _read_pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise ValueError(f"{text!r}: write NAME=VALUE")
    return dict(text.split("=", 1) for text in texts)


async def _run(client: KubeClient, options: StandInOptions) -> None:
    """Run until SIGTERM or SIGINT."""
    async with client:
        await until_stopped(StandInNodes(client, options).run())
