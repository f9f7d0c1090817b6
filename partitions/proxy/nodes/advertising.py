"""io: shows IPUs on the nodes and removes them again; only the leader writes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.kube.errors import ApiError, NotFound
from ipuhub.kube.resources import NODES, WriteOptions
from partitions.proxy.metrics import ADVERTISED, NODE_WRITES
from partitions.proxy.nodes.informer import shown_node, trimmed_node
from partitions.proxy.nodes.visibility import MARK_CAPACITY, Count, plan_visibility

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipuhub.kube.client import KubeClient
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.nodes.informer import NodeLabels
    from partitions.proxy.nodes.visibility import NodeChange, ShownNode

log = structlog.get_logger(__name__)
_OPTIONS: Final = WriteOptions(manager="ipuhub-ipu-visibility")


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityOptions:
    """`owner` names this installation; `look_seconds`: how often to compare with the nodes, and
    `count_seconds`: how often to count the IPUs, whose free count changes with every job."""

    owner: str
    on_masters: bool = False
    look_seconds: float = 5.0
    count_seconds: float = 60.0


class Advertiser:
    """Compares the advertised IPUs of nodes with the desired numbers.

    `say` is called in each pass with a message about the problem; empty: there is none.
    """

    def __init__(
        self,
        nodes: NodeLabels,
        fleet: Fleet,
        client: KubeClient,
        options: VisibilityOptions,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._nodes = nodes
        self._fleet = fleet
        self._client = client
        self._options = options
        self._say = say
        self._problem = ""
        self._counts: list[Count] = []
        self._count_at = 0.0

    async def run(self) -> None:
        """Show the IPUs until cancelled; a failure waits for the next turn."""
        self._count_at = 0.0
        try:
            while True:
                await self.once()
                await asyncio.sleep(self._options.look_seconds)
        finally:
            ADVERTISED.clear()  # the next leader knows better
            self._say("")

    async def once(self) -> None:
        """Compare once, and write the differences."""
        # Nothing is known to be wrong; the readiness page and the log say so already.
        if self._nodes.problem or self._fleet.list_problem:
            return
        await self._count()
        nodes = self._nodes.advertised()
        ADVERTISED.set_all({(n.name,): _number(n) for n in nodes if MARK_CAPACITY in n.marks})
        options = self._options
        changes = plan_visibility(nodes, self._counts, options.owner, on_masters=options.on_masters)
        problem = await write_changes(self._client, changes)
        if problem and problem != self._problem:
            log.warning("IPUs are not shown on all nodes, retrying", problem=problem)
        self._problem = problem
        self._say(problem)

    async def _count(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._count_at:
            self._counts = [_count_of(view) for view in await self._fleet.last_known_views()]
            is_known = all(count.total is not None for count in self._counts)
            self._count_at = now + (self._options.count_seconds if is_known else 0.0)


async def write_changes(client: KubeClient, changes: Sequence[NodeChange]) -> str:
    """Write them; return what is wrong with the last that failed, nothing: none did."""
    problem = ""
    for change in changes:
        try:
            for subresource, patch in change.patches:
                await client.patch(
                    NODES,
                    change.node,
                    patch,
                    subresource=subresource,
                    options=_OPTIONS,
                )
                NODE_WRITES.labels(subresource or "metadata").inc()
        except NotFound:
            continue  # the node has gone
        except ApiError as error:
            problem = f"node {change.node}: {error.message or error.reason}"
    return problem


async def hide_ipus(client: KubeClient, owner: str) -> tuple[list[str], str]:
    """Take every number and mark of `owner` off the nodes; return their names, and what is wrong.

    Raises ApiError where the nodes cannot be listed.
    """
    listed = await client.list(NODES, keep=trimmed_node)  # a hook of the chart has little memory
    nodes = [shown_node(node) for node in listed.items]
    changes = plan_visibility(nodes, [], owner, on_masters=True)
    problem = await write_changes(client, changes)
    return [change.node for change in changes], problem


def _count_of(view: ControllerView) -> Count:
    if not view.is_reachable:
        return Count(view.spec.label, None, None)
    return Count(view.spec.label, view.total, view.free)


def _number(node: ShownNode) -> float:
    return float(node.capacity) if node.capacity.isdecimal() else 0.0
