"""glue: the list of partitions, page and API, which says that older ones were purged.

A composition root: joins partitions and the retention of usage, which deletes them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from partitions.api.views import PartitionList
from partitions.views import PARTITIONS, partition_freshness
from usage.retention.purged import purged_before, say_purged

if TYPE_CHECKING:
    from django.http import HttpRequest
    from rest_framework.request import Request


def _more(request: HttpRequest) -> dict[str, Any]:
    return partition_freshness(request) | {"purged_before": purged_before()}


partition_list = dataclasses.replace(PARTITIONS, more=_more).view


class AllPartitions(PartitionList):
    """Partitions that jobs hold and held, newest reservation first."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page; older rows that were purged are said in a header."""
        answer = super().list(request, *args, **kwargs)
        say_purged(answer)
        return answer
