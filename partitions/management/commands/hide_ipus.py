"""glue: `manage.py hide_ipus`: removes from nodes the resources and labels of
`IPUHUB_IPU_VISIBILITY`.

Run it before an uninstall, or after you turned the setting off: the proxy then no longer has the
right to do it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ipuhub import composition
from ipuhub.kube.errors import ApiError, ConfigError
from partitions.configured import installation
from partitions.proxy.nodes.advertising import hide_ipus


class Command(BaseCommand):
    requires_system_checks = ()
    help = "Removes the labels and the capacity graphcore.ai/ipu that this installation shows."

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            names, problem = asyncio.run(_hide())
        except ConfigError as error:
            raise CommandError(str(error)) from error
        except (ApiError, OSError) as error:
            raise CommandError(f"cannot list nodes: {error}") from error
        if problem:
            raise CommandError(f"IPUs are still shown on some nodes: {problem}. Run it again.")
        where = ", ".join(names) or "none"
        self.stdout.write(f"Nodes that no longer show IPUs: {where}.")


async def _hide() -> tuple[list[str], str]:
    async with composition.cluster_client("ipuhub-proxy") as client:
        return await hide_ipus(client, installation())
