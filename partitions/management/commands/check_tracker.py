"""glue: `manage.py check_tracker`: compares the tracker with the V-IPU controllers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.process import logs
from ipuhub.times import utc_now
from partitions.configured import configured
from partitions.errors import InvalidControllers, TrackerUnavailable, UnknownPartition
from partitions.proxy.lifecycle import release_error
from partitions.proxy.process import beside
from partitions.proxy.repair import Repair, read_claims, strangers
from partitions.vipu.errors import VipuError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.drift import Claim, Drift, UntrackedPartition
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.process import ProxyProcess
    from partitions.proxy.tracker import Tracker


class Command(BaseCommand):
    help = (
        "Lists differences between the tracker and the V-IPU controllers. --repair asks how to "
        "resolve each difference."
    )
    requires_system_checks = ()  # no database and no templates

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--repair",
            action="store_true",
            help="ask how to resolve each difference: adopt or remove a partition without an "
            "entry, or force the removal of a partition that its controller refuses to "
            "remove. Confirm with the id of the partition; any other answer changes nothing",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        try:
            count = asyncio.run(self._check(repair=options["repair"]))
        except (ApiError, ConfigError, InvalidControllers, TrackerUnavailable) as error:
            raise CommandError(str(error)) from error
        if count:
            raise CommandError(f"Tracker and controllers differ in {count} points.")
        self.stdout.write("Tracker and controllers agree.")

    async def _check(self, *, repair: bool) -> int:
        """Say what differs, have it repaired, and return how many points are left."""
        async with beside(configured(settings.PROXY_HOST, settings.PROXY_PORT)) as proxy:
            drift, views = await proxy.sweep.look()
            tracker = proxy.store.tracker
            lines = list(_lines(drift, views, tracker))
            for line in lines:
                self.stdout.write(line)
            claims = await read_claims(proxy.client)
            found = strangers(drift, views, claims, tracker.entries.values())
            done = 0
            for entry in filter(release_error, drift.unfinished):
                done += repair and await self._force(proxy, entry)
            for stranger in found:
                self.stdout.write(_sentence(stranger))
                done += repair and await self._settle(proxy, stranger)
            return len(lines) + len(found) - done

    async def _force(self, proxy: ProxyProcess, entry: TrackerEntry) -> bool:
        """Ask about an entry that its controller does not remove, remove it, and return whether it
        is settled."""
        question = f"  To remove it by force, enter {entry.id} (anything else changes nothing): "
        if await asyncio.to_thread(self._answer, question) != entry.id:
            return False
        try:
            await Repair(proxy.store, proxy.fleet, utc_now).force(entry)
        except (UnknownPartition, VipuError) as error:
            self.stdout.write(f"  Not done: {error}.")
            return False
        self.stdout.write("  Removed; the proxy finishes the release.")
        return True

    async def _settle(self, proxy: ProxyProcess, stranger: UntrackedPartition) -> bool:
        """Ask about a stranger, do it, and return whether it is settled."""
        claim, work = stranger.claim, Repair(proxy.store, proxy.fleet, utc_now)
        what = f"adopt it for {_job(claim)}" if claim else "remove it from its controller"
        question = f"  To {what}, enter {stranger.id} (anything else changes nothing): "
        if await asyncio.to_thread(self._answer, question) != stranger.id:
            return False
        try:
            await (work.adopt(stranger, claim) if claim else work.remove(stranger))
        except (UnknownPartition, VipuError) as error:
            self.stdout.write(f"  Not done: {error}.")
            return False
        self.stdout.write("  Adopted." if claim else "  Removed.")
        return True

    def _answer(self, question: str) -> str:
        """Return what is written on standard input, nothing at its end."""
        try:
            return input(question).strip()
        except EOFError:
            return ""


def _lines(drift: Drift, views: list[ControllerView], tracker: Tracker) -> Iterator[str]:
    """Yield what the proxy settles itself, and what only an edit of the tracker can."""
    for view in views:
        if not view.is_reachable:
            yield f"{view.spec.address} does not answer: {view.problem}."
    for key in sorted(tracker.unreadable):
        yield f"{key}: this value of the tracker is not an entry; it is left unchanged."
    for entry in drift.unfinished:
        if refusal := release_error(entry):
            yield f"{entry.id} on {entry.controller} is not removed: {refusal}."
        else:
            yield f"{entry.id} on {entry.controller} is {entry.phase}; the proxy continues with it."
    for entry in drift.lost:
        where = f"{entry.id} on {entry.controller}"
        yield f"{where} no longer exists there; the proxy sets it to error."
    for entry in drift.faulty:
        yield f"{entry.id} on {entry.controller} is in ERROR; a new attempt of its job resets it."
    for entry, reason in drift.replaced:
        yield f"{entry.id} on {entry.controller}: {reason}; the proxy sets it to error."
    for entry in drift.healed:
        yield f"{entry.id} on {entry.controller} is ACTIVE again; the proxy sets it to active."
    for entry in drift.late:
        where = f"{entry.id} on {entry.controller}"
        if entry.has_come:  # tombstones.py: a sound partition is another owner's
            yield (
                f"{where} was removed after its release and is there; the proxy removes it again "
                "if it is in ERROR, and leaves it to others if it is not."
            )
        else:
            yield f"{where} was created after its release; the proxy removes it."


def _sentence(stranger: UntrackedPartition) -> str:
    whose = f"the status of {_job(stranger.claim)} names it" if stranger.claim else "of no job"
    return f"{stranger.id} on {stranger.controller} ({stranger.size} IPUs) has no entry; {whose}."


def _job(claim: Claim) -> str:
    return f"{claim.namespace}/{claim.name}"
