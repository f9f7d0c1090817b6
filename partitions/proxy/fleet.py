"""io: the current V-IPU controllers: configuration, availability, and partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from partitions.errors import InvalidControllers
from partitions.proxy.circuit import Calls, CircuitOpen
from partitions.proxy.controllers import ControllerView, PartitionSettings, parse_controllers
from partitions.proxy.member import Answer, Listing, Member, Refusal
from partitions.proxy.vipuapi import ChangeCounter
from partitions.vipu.errors import NoAnswer, Unavailable, VipuError
from partitions.vipu.places import with_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from partitions.proxy.breaker import Connection
    from partitions.proxy.circuit import CircuitFacts
    from partitions.proxy.controllers import ControllerSpec
    from partitions.proxy.vipuapi import VipuApi
    from partitions.vipu.types import VipuPartition

log = structlog.get_logger(__name__)

_NO_SETTINGS = PartitionSettings()
# Of `fresh_seconds`: from then on the next answer is requested, while readers get the last answer.
_RENEW_AFTER = 0.8
# For so long the last answer of a controller that is silent by now counts in sums.
_REMEMBER_SECONDS = 60.0
# Removed controllers without calls for so long hold none of our partitions any more.
_FORGET_SECONDS = 600.0
_VERSION_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Timeouts and intervals of calls to controllers.

    `refusal_seconds`: how long a controller counts as full for a size after it refused it, if it
    does not report the places of its IPUs and none of its partitions is removed. `fresh_seconds`:
    how long an answer counts as current for display, unless the proxy has changed something there
    since. `doubt_seconds`: how long to wait for the view of a controller that did not answer last
    time.
    """

    view_seconds: float = 3.0
    topology_seconds: float = 10.0
    watch_seconds: float = 5.0
    refusal_seconds: float = 60.0
    fresh_seconds: float = 1.0
    doubt_seconds: float = 0.5


class Fleet:
    """All controllers of the list, and removed controllers that still hold some of our partitions.

    `connect` opens an address, `read_list` gives the list as text (raises OSError), `has_node` says
    whether some node carries "label=value", `clock` is in seconds and never goes back.
    `last_views`: the answers that `run` got within the last seconds. `calls` counts the requested
    lists.
    """

    def __init__(  # the outside world it stands between
        self,
        connect: Callable[[str], Connection],
        read_list: Callable[[], str],
        has_node: Callable[[str], bool],
        clock: Callable[[], float],
        options: FleetOptions,
        defaults: PartitionSettings = _NO_SETTINGS,
    ) -> None:
        self.last_views: tuple[ControllerView, ...] = ()
        self.calls = 0
        self._heard = asyncio.Event()
        self._connect = connect
        self._read_list = read_list
        self._has_node = has_node
        self._clock = clock
        self._options = options
        self._defaults = defaults
        self._members: dict[str, Member] = {}
        self._specs: tuple[ControllerSpec, ...] = ()
        self._text: str | None = None
        self._list_problem = ""

    @property
    def specs(self) -> tuple[ControllerSpec, ...]:
        """The controllers of the list, in its order."""
        return self._specs

    @property
    def list_problem(self) -> str:
        """Return why the current list cannot be used; the last valid list stays in force."""
        return self._list_problem

    @property
    def problem(self) -> str:
        """Return why no partition can be made on any controller; empty: it can."""
        if not self._specs:
            return self._list_problem or "no V-IPU controller is configured"
        problems = [self._member(spec.address).problem for spec in self._specs]
        return "; ".join(problems) if all(problems) else ""

    def spec_of(self, address: str) -> ControllerSpec | None:
        """Return the controller of that address; None if it is not in the list."""
        return next((spec for spec in self._specs if spec.address == address), None)

    def circuits(self) -> dict[str, CircuitFacts]:
        """Return how the circuit breaker of each controller stands, by address."""
        return {address: member.breaker.facts for address, member in self._members.items()}

    def api(self, address: str) -> VipuApi:
        """The connection to an address, on the list or not."""
        return self._member(address).api

    def doubts_creations(self, address: str) -> bool:
        """Return whether the controller did not answer the last creation."""
        return self._member(address).breaker.is_doubted(Calls.CREATE)

    def wants_key(self, address: str) -> bool:
        """Return whether the pods on a controller need a key; so they do while its files cannot be
        used, which say so."""
        try:
            return self.api(address).pod_tls() is not None
        except VipuError:
            return True

    def reload(self) -> None:
        """Load the list if it has changed; an invalid list is logged and ignored."""
        try:
            text = self._read_list()
            if text == self._text:
                return
            specs = parse_controllers(text, self._defaults)
        except (OSError, UnicodeDecodeError, InvalidControllers) as error:
            if str(error) != self._list_problem:
                log.warning(
                    "list of V-IPU controllers not usable, keeping the last good list",
                    problem=str(error),
                    controllers=len(self._specs),
                )
            self._list_problem = str(error)
            return
        self._text, self._list_problem = text, ""
        if specs != self._specs:
            log.info("V-IPU controllers", addresses=[spec.address for spec in specs])
        self._specs = specs

    async def views(self) -> list[ControllerView]:
        """Return the current state of every controller in the list, all queried at once."""
        return list(await asyncio.gather(*(self.view(spec) for spec in self._specs)))

    async def view(self, spec: ControllerSpec) -> ControllerView:
        """Return the current state of one controller; a controller that did not answer last time is
        hardly waited for, so that it does not delay what another controller can do."""
        has_node = self._has_node(spec.label)
        member = self._member(spec.address)
        try:
            member.breaker.refuse()
            seconds = self._options.doubt_seconds if member.breaker.is_doubted() else None
            listing = await self._list(member, spec.address, seconds)
        except VipuError as error:
            problem, circuit = member.problem or str(error), member.breaker.facts
            return ControllerView(spec, problem=problem, has_node=has_node, circuit=circuit)
        partitions = listing.partitions
        topology = member.topology and with_places(member.topology, partitions)
        refused = self._refused_from(member, partitions)
        view = ControllerView(
            spec,
            topology,
            tuple(partitions),
            has_node=has_node,
            refused_from=refused,
            circuit=member.breaker.facts,
            version=member.version,
        )
        if member.answer is not None and member.answer.view == view:
            view = member.answer.view  # with all that was computed from it
        member.answer = Answer(view, self._clock(), listing.changes)
        return view

    async def recent_views(
        self, remember_seconds: float = _REMEMBER_SECONDS
    ) -> tuple[list[ControllerView], float]:
        """Return `last_known_views`, and how many seconds old the oldest of them is; of a silent
        controller its last state while it is younger than `remember_seconds`.

        A controller is not called again within `fresh_seconds`, unless the proxy has changed
        something there since: a controller takes 20 ms and more for a list of 2,000 partitions.
        Shortly before its end the next list is requested.
        """
        recent = (self._recent(spec, remember_seconds) for spec in self._specs)
        found = await asyncio.gather(*recent)
        return [view for view, _ in found], max((age for _, age in found), default=0.0)

    async def _recent(
        self, spec: ControllerSpec, remember_seconds: float
    ) -> tuple[ControllerView, float]:
        member = self._member(spec.address)
        answer, now = member.answer, self._clock()
        if (
            answer is not None
            and answer.changes == member.api.changes
            and answer.view.spec == spec
            and now - answer.at < self._options.fresh_seconds
            and not member.problem
        ):
            has_node, circuit = self._has_node(spec.label), member.breaker.facts
            if (has_node, circuit) != (answer.view.has_node, answer.view.circuit):
                view = replace(answer.view, has_node=has_node, circuit=circuit)
                member.answer = answer = replace(answer, view=view)
            if now - answer.at >= _RENEW_AFTER * self._options.fresh_seconds:
                self._renew(member, spec)
            return answer.view, now - answer.at
        view = self._last_known(await self.view(spec), remember_seconds)
        return view, view.age_seconds

    def _renew(self, member: Member, spec: ControllerSpec) -> None:
        """Ask a controller while its last answer still counts, so that no reader waits for it."""
        if member.renewing is None or member.renewing.done():
            member.renewing = asyncio.create_task(self.view(spec))

    async def last_known_views(self) -> list[ControllerView]:
        """Return `views`, with the last state of silent controllers while it is not too old."""
        return [self._last_known(view) for view in await self.views()]

    def _last_known(
        self, view: ControllerView, remember_seconds: float = _REMEMBER_SECONDS
    ) -> ControllerView:
        answer = self._member(view.spec.address).answer
        if view.is_reachable or answer is None:
            return view
        last, age = answer.view, self._clock() - answer.at
        if last.spec != view.spec or age >= remember_seconds:
            return view
        # At least 1: it is reported in whole seconds, and 0 means now.
        age = max(age, 1.0)
        last = replace(last, problem=view.problem, circuit=view.circuit, has_node=view.has_node)
        return replace(last, age_seconds=age)

    def note_refusal(self, address: str, size: int) -> None:
        """A controller that has room as far as we know has none for a partition of `size`."""
        member = self._member(address)
        member.topology_at = self._clock()  # a machine may have been cordoned since
        until = self._clock() + self._options.refusal_seconds
        member.refusals[size] = Refusal(member.listed, until)

    def renew_topologies(self, addresses: Iterable[str]) -> None:
        """Request the attributes of IPUs with the next list of each of these controllers."""
        for address in addresses:
            self._member(address).topology_at = self._clock()

    def _refused_from(self, member: Member, partitions: Iterable[VipuPartition]) -> int:
        """The smallest size that it has no room for until a partition is removed; 0: none.

        If the reason of the refusal is unknown, the size is tried again after a while.
        """
        ids, now = {partition.id for partition in partitions}, self._clock()
        valid = {s: refusal for s, refusal in member.refusals.items() if refusal.holds(ids, now)}
        member.refusals = valid
        return min(valid, default=0)

    async def listed(self, address: str) -> dict[str, VipuPartition]:
        """All partitions of a controller, on the list or not, by id; raises VipuError."""
        listing = await self._list(self._member(address), address)
        return {partition.id: partition for partition in listing.partitions}

    async def overhear(self, since: int) -> dict[str, dict[str, VipuPartition]]:
        """The partitions by controller and id, from lists that other callers request after the
        first `since` calls. Waits for the first of them, and requests none itself."""
        while True:
            self._heard.clear()
            answers = {at: member.listing for at, member in self._members.items()}
            found = {
                at: answer[1] for at, answer in answers.items() if answer and answer[0] > since
            }
            if found:
                return {
                    at: {partition.id: partition for partition in listed}
                    for at, listed in found.items()
                }
            await self._heard.wait()

    async def run(self) -> None:
        """Watch the list of controllers, and reconnect to unavailable ones; until cancelled."""
        while True:
            self.reload()
            await self.forget_unused()
            self.last_views = tuple(await self.views())
            await asyncio.sleep(self._options.watch_seconds)

    async def close(self) -> None:
        """End all connections."""
        members, self._members = list(self._members.values()), {}
        for member in members:
            await member.close()

    async def forget_unused(self) -> None:
        """Close connections to removed controllers that were not called for a while, and forget
        their circuits."""
        listed, now = {spec.address for spec in self._specs}, self._clock()
        for address, member in list(self._members.items()):
            if address not in listed and now - member.used_at >= _FORGET_SECONDS:
                del self._members[address]
                await member.close()

    def _member(self, address: str) -> Member:
        if address not in self._members:
            made = self._connect(address)
            self._members[address] = Member(ChangeCounter(made.api), made.breaker)
        member = self._members[address]
        member.used_at = self._clock()
        return member

    async def _list(self, member: Member, address: str, seconds: float | None = None) -> Listing:
        """List the partitions by a call that begins now or later, shared by all waiting callers.

        Raise NoAnswer after so many `seconds`; the call continues.

        A call that is already in progress may not show what the caller has just seen, so only the
        next call is used.
        """
        if member.following is None or member.following.done():
            member.following = asyncio.create_task(self._list_after(member, address))
            # No caller may be left to get the error, which the member stores anyway.
            member.following.add_done_callback(lambda task: task.cancelled() or task.exception())
        task = member.following
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise NoAnswer(f"{address}: no answer in {seconds:g} s")
        return task.result()

    async def _list_after(self, member: Member, address: str) -> Listing:
        if member.running is not None and not member.running.done():
            await asyncio.wait({member.running})
        member.running, member.following = member.following, None
        try:
            async with asyncio.timeout(self._options.view_seconds):
                listing = await self._ask_again(member)
        except TimeoutError:
            problem = f"{address}: no answer in {self._options.view_seconds:g} s"
            member.breaker.note_silence(problem)
            member.silence, member.topology = problem, None
            raise NoAnswer(problem) from None
        except CircuitOpen:
            raise
        except VipuError as error:
            member.silence, member.topology = str(error) or type(error).__name__, None
            raise
        member.silence = ""
        return listing

    async def _ask_again(self, member: Member) -> Listing:
        """Call, and retry once if a controller that answered until now does not: a connection that
        broke meanwhile is not worth reporting."""
        try:
            return await self._ask(member)
        except Unavailable:
            if member.problem:
                raise
            return await self._ask(member)

    async def _ask(self, member: Member) -> Listing:
        if member.topology is None or self._clock() >= member.topology_at:
            try:
                member.topology = await member.api.list_ipu_attributes()
            except ValueError as error:
                raise VipuError(f"its fleet makes no sense: {error}") from error
            member.version = await self._ask_version(member)
            member.topology_at = self._clock() + self._options.topology_seconds
        self.calls += 1
        number, changes = self.calls, member.api.changes
        partitions = await member.api.list_partitions()
        member.listed = frozenset(partition.id for partition in partitions)
        member.listing = number, partitions
        self._heard.set()
        return Listing(partitions, changes)

    async def _ask_version(self, member: Member) -> str:
        """Return the release of a controller, the last one known where it does not say: nothing but
        a page waits for it."""
        try:
            async with asyncio.timeout(_VERSION_SECONDS):
                return await member.api.version()
        except (VipuError, TimeoutError):
            return member.version
