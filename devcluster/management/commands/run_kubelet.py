"""glue: `manage.py run_kubelet`, the stand-in nodes of the demo and the tests."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from devcluster.kubelet import Durations, StandInNodes, StandInOptions, Taint
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import ConfigError, load_config
from ipuhub.process import logs
from ipuhub.process.runtime import give_back_what_is_free

_SWITCH = argparse.BooleanOptionalAction
_PARTS = {
    "scheduler": "bind pods to the nodes",
    "lifecycle": "mark nodes that are not heard of and evict their pods",
    "claims": "bind volume claims",
}


class Command(BaseCommand):
    requires_system_checks = ()  # they would load the web pages
    help = (
        "Registers simulated nodes and drives the pods on them by their sim/ annotations. "
        "Brings its own scheduler, node lifecycle and volume binder; on a cluster that has them, "
        "say --no-scheduler --no-lifecycle --no-claims."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--kubeconfig", default=settings.KUBECONFIG, help="of the cluster that gets the nodes")
        add("--context", default=settings.KUBE_CONTEXT, help="in it; its current one by default")
        _add_node_arguments(parser)
        for name, part in _PARTS.items():
            add(f"--{name}", action=_SWITCH, default=True, help=part)
        add(
            "--scheduler-name",
            default="default-scheduler",
            help="whose pods to schedule; default: %(default)s",
        )
        add(
            "--processes",
            type=Path,
            metavar="DIR",
            help="RUN the containers' commands on THIS MACHINE, with their files below DIR",
        )
        add(
            "--launcher-seconds",
            type=float,
            default=900.0,
            help="run time of launchers; default: %(default)s",
        )
        add(
            "--worker-seconds",
            type=float,
            default=900.0,
            help="run time of workers; default: %(default)s",
        )
        add(
            "--pod-seconds",
            type=float,
            default=900.0,
            help="run time of other pods that end; default: %(default)s",
        )
        add("--startup-seconds", type=float, default=0.0, help="from binding to running")
        add(
            "--dead-after-seconds",
            type=float,
            default=40.0,
            help="until a node is Unknown; default: %(default)s",
        )
        add("--eviction-seconds", type=float, help="replaces the pods' own tolerationSeconds")

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            config = load_config(options["kubeconfig"], options["context"])
            stand_in = read_options(options)
        except (ConfigError, ValueError) as error:
            raise CommandError(str(error)) from error
        give_back_what_is_free()
        asyncio.run(_run(KubeClient(config, user_agent="ipuhub-kubelet"), stand_in))


def _add_node_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=int, default=4, help="how many nodes; default: %(default)s")
    add("--first", type=int, default=0, help="number of the first node")
    add("--prefix", default="node-", help="names are PREFIX and a number")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="{i}: the node's number")
    add("--taint", action="append", default=[], metavar="KEY=VALUE:EFFECT", help="of all nodes")
    add("--cpu", default="32", help="cores of a node; default: %(default)s")
    add("--memory", default="256Gi", help="of a node; default: %(default)s")
    add("--pods", type=int, default=110, help="pods that a node takes; default: %(default)s")
    add(
        "--extended",
        action="append",
        default=[],
        metavar="RESOURCE=AMOUNT",
        help="extended resource of a node",
    )


def read_options(options: dict[str, Any]) -> StandInOptions:
    """Make the nodes' options of the command's. Raises ValueError for what cannot be read."""
    same = ("nodes", "first", "prefix", "cpu", "memory", "pods", "scheduler", "lifecycle", "claims")
    return StandInOptions(
        processes=options["processes"],
        **{name: options[name] for name in same},
        labels=_read_pairs(options["label"]),
        taints=tuple(Taint.parse(text) for text in options["taint"]),
        extended=_read_pairs(options["extended"]),
        dead_after_seconds=options["dead_after_seconds"],
        eviction_seconds=options["eviction_seconds"],
        scheduler_name=options["scheduler_name"],
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
        running = asyncio.create_task(StandInNodes(client, options).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
