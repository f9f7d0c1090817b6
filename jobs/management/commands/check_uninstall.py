"""glue: `manage.py check_uninstall`: checks that removing the operator leaves no job stuck.

Without an operator to remove its finalizer, a deleted job stays forever, and so does its namespace.
The Helm chart runs this check before an uninstall (`uninstall.enabled`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub import composition
from ipuhub.kube.errors import ApiError, ConfigError, NotFound
from jobs.ipujob.names import FINALIZERS, IPUJOBS, metadata

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from ipuhub.kube.client import KubeClient

_SHOWN: Final = 20
_PAUSE_SECONDS: Final = 1.0


class Command(BaseCommand):
    requires_system_checks = ()
    help = (
        "Checks that no IPUJob is left that only the operator can release, in the namespaces of "
        "IPUHUB_JOB_NAMESPACES."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--drain", action="store_true", help="delete the jobs and wait")
        parser.add_argument(
            "--seconds", type=int, default=240, help="how long --drain waits; default: 240"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            remaining = asyncio.run(_remaining(options["drain"], options["seconds"]))
        except ConfigError as error:
            raise CommandError(str(error)) from error
        except (ApiError, OSError) as error:
            raise CommandError(f"cannot list IPUJobs: {error}") from error
        if not remaining:
            self.stdout.write("No IPUJob needs the operator.")
            return
        names = ", ".join(remaining[:_SHOWN]) + (
            f" and {len(remaining) - _SHOWN} more" * (len(remaining) > _SHOWN)
        )
        waited = f" after {options['seconds']} s" if options["drain"] else ""
        raise CommandError(
            f"{len(remaining)} IPUJobs still need the operator{waited}: {names}. Delete them with "
            "kubectl delete ipujob, then uninstall again. To leave them behind, uninstall with "
            "--no-hooks."
        )


async def _remaining(drain: bool, seconds: int) -> list[str]:
    """The jobs with one of our finalizers as namespace/name, after draining if requested."""
    async with composition.cluster_client("ipuhub-uninstall") as client:
        held = await _held(client)
        if drain:
            for namespace, name in held:
                try:
                    await client.delete(IPUJOBS, name, namespace)
                except NotFound:
                    continue  # it went by itself
            loop = asyncio.get_running_loop()
            end = loop.time() + seconds
            while held and loop.time() < end:
                await asyncio.sleep(_PAUSE_SECONDS)
                held = await _held(client)
        return ["/".join(each) for each in held]


async def _held(client: KubeClient) -> list[tuple[str, str]]:
    chosen = settings.JOB_NAMESPACES  # another release runs the jobs of others
    try:
        found = (await client.list(IPUJOBS, keep=_needed)).items
    except NotFound:
        return []  # no CRD, so no jobs
    return sorted(
        (meta["namespace"], meta["name"])
        for meta in found
        if meta["held"] and (not chosen or meta["namespace"] in chosen)
    )


def _needed(job: dict[str, Any]) -> dict[str, Any]:
    """Return what the check needs of a job: thousands of them in full do not fit into the memory
    of the chart's hook."""
    meta = metadata(job)
    held = bool(set(FINALIZERS) & set(meta.get("finalizers") or ()))
    return {"namespace": str(meta["namespace"]), "name": str(meta["name"]), "held": held}
