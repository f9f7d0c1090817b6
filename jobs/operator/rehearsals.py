"""io: pods that the API server is asked about before a job takes IPUs for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ipuhub.kube.errors import AlreadyExists, ApiError
from jobs.ipujob.resources import RESOURCE_OF
from jobs.operator.actions import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.client import KubeClient
    from jobs.operator.actions import TryPod

REMEMBERED_SECONDS = 10.0  # a burst of equal jobs asks once
MOST_REMEMBERED = 1000
_NO_DRY_RUN = "does not support dry run"  # a webhook with side effects: nobody can tell beforehand


class Rehearsals:
    """Asks by dry runs, which store nothing. What was taken a moment ago is not asked again: a
    quota that is used up meanwhile refuses the pods themselves."""

    def __init__(self, client: KubeClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._taken: dict[str, float] = {}

    async def judge(self, action: TryPod) -> None:
        """Raises the ApiError by which the server would refuse the pod."""
        now = self._monotonic()
        if now - self._taken.get(action.key, float("-inf")) < REMEMBERED_SECONDS:
            return
        try:
            await self._client.try_create(RESOURCE_OF[Kind.POD], action.manifest)
        except AlreadyExists:
            pass  # the pod of an attempt before, or somebody else's: its creation will tell
        except ApiError as error:
            if _NO_DRY_RUN not in error.message:
                raise
        if len(self._taken) >= MOST_REMEMBERED:
            self._taken.clear()
        self._taken[action.key] = now
