"""glue: asks Kubernetes who a token belongs to, and in which namespaces a user may list IPUJobs.

Answers are cached for a bounded time. At most a few reviews wait for Kubernetes at once, because
each of them holds a thread of the web server while Kubernetes does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.conf import settings
from django.db import connection

from ipuhub.kube.access import Reviewer
from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.web.clusterusers import ClusterAway
from ipuhub.web.readings import PATIENCE_SECONDS
from jobs.ipujob.names import IPUJOBS
from jobs.models import JobRecord
from partitions.connections import sources
from partitions.models import PartitionLifetime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from ipuhub.kube.access import User
    from ipuhub.kube.client import KubeClient

T = TypeVar("T")
_MOST_REVIEWS: Final = 8
_REVIEWS: Final = threading.BoundedSemaphore(_MOST_REVIEWS)
_AT_ONCE: Final = 16
_MOST_USERS: Final = 4096
# Each step finds the next name in an index: a table of a million rows has few namespaces.
_NAMES: Final = """
WITH RECURSIVE found AS (
  (SELECT namespace FROM {table} ORDER BY namespace LIMIT 1)
  UNION ALL
  SELECT (SELECT namespace FROM {table} WHERE namespace > found.namespace
          ORDER BY namespace LIMIT 1)
  FROM found WHERE found.namespace IS NOT NULL)
SELECT namespace FROM found WHERE namespace IS NOT NULL
"""


class KubernetesAuthority:
    """Decides by TokenReview and SubjectAccessReview."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[User, tuple[float, frozenset[str] | None]] = {}

    def user_of(self, token: str) -> User | None:
        """Return whose token this is, if it is valid for the audience. Raises ClusterAway."""
        with _review_client() as client:
            reviewer = _reviewer(client, settings.API_AUDIENCE)
            return _run(reviewer.authenticate, token)

    def namespaces_of(self, user: User) -> frozenset[str] | None:
        """Return the namespaces in which the user may list IPUJobs; None: in all.

        Only namespaces with recorded jobs or partitions count. Raises ClusterAway.
        """
        now = self._clock()
        with self._lock:
            at, found = self._known.get(user, (float("-inf"), None))
        if now - at < settings.ACCESS_CACHE_SECONDS:
            return found
        with _review_client() as client:
            found = _run(_listable, _reviewer(client, settings.API_AUDIENCE), user, _recorded())
        with self._lock:
            if len(self._known) >= _MOST_USERS:
                self._known.clear()
            self._known[user] = (now, found)
        return found


@lru_cache(maxsize=1)
def authority() -> KubernetesAuthority:
    """Return the authority of this process."""
    return KubernetesAuthority()


@lru_cache(maxsize=2)
def _reviewer(client: KubeClient, audience: str) -> Reviewer:
    return Reviewer(client, audience)


@contextlib.contextmanager
def _review_client() -> Iterator[KubeClient]:
    """Yield the client while this is one of the few reviews. Raises ClusterAway."""
    if not _REVIEWS.acquire(blocking=False):
        raise ClusterAway
    try:
        yield sources().kube.client
    except (ApiError, ConfigError, TimeoutError) as error:
        raise ClusterAway from error
    finally:
        _REVIEWS.release()


def _run(work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
    async def in_time() -> T:
        return await asyncio.wait_for(work(*arguments), PATIENCE_SECONDS)

    return sources().kube.run(in_time)


async def _listable(reviewer: Reviewer, user: User, namespaces: list[str]) -> frozenset[str] | None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def may(namespace: str) -> bool:
        async with gate:
            return await reviewer.authorize(
                user,
                verb="list",
                group=IPUJOBS.group,
                resource=IPUJOBS.plural,
                namespace=namespace,
            )

    if await may(""):
        return None
    allowed = await asyncio.gather(*(may(namespace) for namespace in namespaces))
    return frozenset(name for name, yes in zip(namespaces, allowed, strict=True) if yes)


def _recorded() -> list[str]:
    """Return the namespaces of all recorded jobs and partitions."""
    found: set[str] = set()
    with connection.cursor() as cursor:
        for model in (JobRecord, PartitionLifetime):
            cursor.execute(_NAMES.format(table=model._meta.db_table))  # noqa: SLF001  # Django's
            found |= {name for (name,) in cursor.fetchall()}
    return sorted(found)
