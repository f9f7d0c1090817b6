"""io: the extender endpoints of kube-scheduler: which nodes can run a job's pod, and which are
best.

Answered from the proxy's memory: neither the API server nor V-IPU is called.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from ipuhub.partition import Phase
from partitions.errors import InvalidQuestion
from partitions.proxy import requests
from partitions.proxy.metrics import EXTENDED
from partitions.proxy.nodes import nearness
from partitions.proxy.nodes.nearness import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.proxy.nodes.informer import Node
    from partitions.proxy.nodes.nearness import Candidate, Question
    from partitions.proxy.requests import Handler
    from partitions.proxy.trackerstore import TrackerStore

PREFIX: Final = "/scheduler/"
# Whole nodes are some 8 kB each. Larger clusters send names (nodeCacheCapable: true).
MAX_QUESTION_BYTES: Final = 8 * 1024 * 1024
# Below the httpTimeout of our KubeSchedulerConfiguration, so the scheduler gets the reason.
DEADLINE_SECONDS: Final = 1.5


class Extender:
    """Answers kube-scheduler. `find_node` returns the nodes that it names without sending them."""

    def __init__(
        self,
        store: TrackerStore,
        find_node: Callable[[str], Node | None],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._store = store
        self._find_node = find_node
        self._deadline_seconds = deadline_seconds

    def routes(self) -> list[web.RouteDef]:
        """The two pages."""
        return [
            web.post(PREFIX + "filter", self.filter),
            web.post(PREFIX + "prioritize", self.prioritize),
        ]

    async def filter(self, request: web.Request) -> web.Response:
        """`POST /scheduler/filter`: the nodes that reach the IPUs of the pod's job."""
        question, place = await self._asked(request)
        EXTENDED.labels("filter", _kind(question, place)).inc()
        return web.json_response(nearness.filter_nodes(question, place))

    async def prioritize(self, request: web.Request) -> web.Response:
        """`POST /scheduler/prioritize`: a score of 0 to 10 for each node."""
        question, place = await self._asked(request)
        EXTENDED.labels("prioritize", _kind(question, place)).inc()
        return web.json_response(nearness.rank_nodes(question, place))

    async def _asked(self, request: web.Request) -> tuple[Question, Place | None]:
        """The question with what is known of its nodes, and where the job's IPUs are.

        Raises Problem, TrackerUnavailable.
        """
        try:
            async with asyncio.timeout(self._deadline_seconds):
                found: dict[str, Any] = await requests.read_object(request)
        except TimeoutError:
            raise requests.unavailable(
                f"the body did not arrive within {self._deadline_seconds:g} s"
            ) from None
        try:
            question = nearness.read_question(found)
        except InvalidQuestion as error:
            raise requests.Problem(400, str(error)) from None
        if question.nodes is None:
            known = tuple(self._known(candidate) for candidate in question.candidates)
            question = replace(question, candidates=known)
        return question, self._place(question)

    def _known(self, candidate: Candidate) -> Candidate:
        node = self._find_node(candidate.name)
        if node is None:
            return candidate
        return replace(candidate, labels=node.labels, addresses=node.addresses)

    def _place(self, question: Question) -> Place | None:
        """Return where the IPUs of the pod's job are; None: the pod is no job's, or the job holds
        none."""
        holder = question.holder
        entry = self._store.tracker.newest(holder) if holder is not None else None
        if entry is None or entry.phase is Phase.RELEASED or not entry.label:
            return None
        key, _, value = entry.label.partition("=")
        return Place(entry.controller, key, value)


@web.middleware
async def allow_node_lists(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Allow only kube-scheduler to send the whole list of nodes."""
    if request.path.startswith(PREFIX):
        request = request.clone(client_max_size=MAX_QUESTION_BYTES)
    return await handler(request)


def _kind(question: Question, place: Place | None) -> str:
    if question.holder is None:
        return "other"
    return "job" if place is not None else "unknown"
