"""glue: `manage.py run_monitor`: ends lifetimes of pods whose end the prober missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from ipuhub import composition
from ipuhub.management import require_usage
from usage.monitor.process import monitor_once, run_monitor

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from usage.monitor.rounds import Tally


class Command(BaseCommand):
    help = "Closes the lifetimes of pods whose end the prober missed. Runs until SIGTERM."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="run one round and exit")

    def handle(self, *_args: Any, **options: Any) -> None:
        require_usage()
        if options["once"]:
            self._tell(composition.run(monitor_once))
        else:
            composition.run(run_monitor)

    def _tell(self, tally: Tally) -> None:
        self.stdout.write(
            f"{tally.checked} checked, {tally.present} there, {tally.closed} ended, "
            f"{tally.left} left to the prober or a later round"
        )
        if tally.problem:
            raise CommandError(f"the round is incomplete: {tally.problem}")
