"""glue: `manage.py import_tracker`: adopts partitions that Graphcore's operator made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub.kube.errors import ApiError, ConfigError, NotFound
from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.partition import Phase
from ipuhub.process import logs
from ipuhub.times import utc_now
from partitions.configured import configured
from partitions.errors import InvalidControllers, TrackerUnavailable, UnknownPartition
from partitions.proxy.original import Known, findings
from partitions.proxy.process import beside
from partitions.proxy.repair import Repair, read_jobs, strangers
from partitions.vipu.errors import VipuError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from partitions.proxy.original import Finding
    from partitions.proxy.process import ProxyProcess


class Command(BaseCommand):
    help = (
        "Takes over the partitions in the tracker of Graphcore's operator for the jobs that hold "
        "them. What it does not understand it names and leaves as it is. You can repeat it. Exit "
        "code 1: something was left."
    )
    requires_system_checks = ()  # no database and no templates

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--from",
            dest="source",
            default="",
            metavar="NAMESPACE/NAME",
            help="ConfigMap of that tracker; default: IPUHUB_TRACKER_CONFIGMAP in "
            "IPUHUB_NAMESPACE, which IPUHub continues",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="only print what would be taken over"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        source = options["source"] or f"{settings.NAMESPACE}/{settings.TRACKER_CONFIGMAP}"
        namespace, _, name = source.partition("/")
        if not namespace or not name:
            raise CommandError(f"--from {source}: write NAMESPACE/NAME.")
        try:
            unsettled = asyncio.run(self._import(namespace, name, write=not options["dry_run"]))
        except NotFound:
            raise CommandError(f"There is no ConfigMap {namespace}/{name}.") from None
        except (ApiError, ConfigError, InvalidControllers, TrackerUnavailable) as error:
            raise CommandError(str(error)) from error
        if unsettled:
            raise CommandError(f"{unsettled} left as they are. Correct the causes and repeat.")
        self.stdout.write("Nothing is left to take over.")

    async def _import(self, namespace: str, name: str, *, write: bool) -> int:
        """Take over what can be, and return how many findings are left."""
        async with beside(configured(settings.PROXY_HOST, settings.PROXY_PORT)) as proxy:
            data = (await proxy.client.get(CONFIG_MAPS, name, namespace)).get("data") or {}
            known = await _known(proxy)
            unsettled = 0
            for finding in findings(data, known):
                unsettled += not await self._settle(proxy, finding, write=write)
            return unsettled

    async def _settle(self, proxy: ProxyProcess, finding: Finding, *, write: bool) -> bool:
        """Say and do what a finding asks for; whether nothing is left of it."""
        stranger = finding.stranger
        self.stdout.write(f"{finding.key}: {finding.reason}.")
        if stranger is None or stranger.claim is None:
            return finding.is_settled
        if not write:
            self.stdout.write("  Would be taken over.")
            return True
        try:
            await Repair(proxy.store, proxy.fleet, utc_now).adopt(stranger, stranger.claim)
        except (UnknownPartition, VipuError) as error:
            self.stdout.write(f"  Not done: {error}.")
            return False
        self.stdout.write("  Taken over.")
        return True


async def _known(proxy: ProxyProcess) -> Known:
    """Return what exists. Raises ConfigError while a controller is silent: a partition of it
    would look like none."""
    drift, views = await proxy.sweep.look()
    silent = [f"{view.spec.address} ({view.problem})" for view in views if not view.is_reachable]
    if silent:
        raise ConfigError(f"V-IPU controllers do not answer: {', '.join(silent)}. Nothing was done")
    entries = proxy.store.tracker.entries.values()
    held = tuple(entry for entry in entries if entry.phase is not Phase.RELEASED)
    jobs = tuple(await read_jobs(proxy.client))
    return Known(tuple(strangers(drift, views, {}, entries)), held, jobs)
