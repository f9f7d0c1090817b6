"""io: the agent API over gRPC: translates messages to calls of the machine and back."""

# gRPC calls the methods by the names of the interface.
# ruff: noqa: N802
from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from grpc import StatusCode

from partitions.vipu.agent import wire
from partitions.vipu.agent.holder import (
    CONTROLLER_HEADER,
    HELD_FOR,
    TAKE_OVER_HEADER,
    RefusedHosts,
    next_holder,
    rival_of,
)
from partitions.vipu.agent.machine import Configure, Outcome, Release
from partitions.vipu.codes import code_of, details_of
from partitions.vipu.errors import NotReady, VipuError
from partitions.vipu.protos import vipu_agent_pb2 as pb
from partitions.vipu.protos import vipu_diagnostics_pb2 as diagnostics_pb
from partitions.vipu.protos.vipu_agent_pb2_grpc import AgentServiceServicer
from partitions.vipu.protos.vipu_diagnostics_pb2_grpc import AgentDiagnosticsServiceServicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from google.protobuf.message import Message
    from grpc.aio import ServicerContext

    from partitions.vipu.agent.holder import Holder, Rival
    from partitions.vipu.agent.ipuof import IpuofPorts
    from partitions.vipu.agent.machine import Machine, Order
    from partitions.vipu.agent.simulated import SimulatedMachine

    _Context = ServicerContext[Message, Message]

log = structlog.get_logger(__name__)
_PAUSE_SECONDS: Final = 0.05
_Answer = TypeVar("_Answer")


class AgentService(AgentServiceServicer, AgentDiagnosticsServiceServicer):
    """The calls of a controller to one machine.

    `agent` is its name in the log. `simulated` is the same machine where it can fail on command,
    None for a real machine; `ipuof` are its ports, which follow its partitions. `exporter_port` is
    of its metrics, 0 until it is set.
    """

    def __init__(
        self,
        agent: str,
        machine: Machine,
        clock: Callable[[], datetime],
        simulated: SimulatedMachine | None = None,
        ipuof: IpuofPorts | None = None,
    ) -> None:
        self._log = log.bind(agent=agent)
        self._machine = machine
        self._clock = clock
        self._simulated = simulated
        self.exporter_port = 0
        self._ipuof = ipuof
        self._holder: Holder | None = None
        self._refused = RefusedHosts()
        self._rival: Rival | None = None
        self._rival_until: datetime | None = None
        self._followers: set[asyncio.Task[None] | None] = set()
        self._is_stopping = False

    async def GetInventory(
        self, request: pb.GetInventoryRequest, context: _Context
    ) -> pb.GetInventoryReply:
        """Answer with what the machine is made of."""
        del request

        def inventory(_: datetime) -> pb.GetInventoryReply:
            found = replace(self._machine.inventory, exporter_port=self.exporter_port)
            return wire.inventory_to_message(found)

        return await self._answer(inventory, context)

    async def Follow(
        self, request_iterator: AsyncIterator[pb.Orders], context: _Context
    ) -> AsyncIterator[pb.FollowReply]:
        """Begin the orders of each message, and answer with partitions and faults."""
        task = asyncio.current_task()
        self._followers.add(task)
        try:
            async for message in request_iterator:
                yield await self._answer_holder(partial(self._begun, message.orders), context)
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._followers.discard(task)

    def stop_following(self) -> None:
        """End the calls that controllers keep: they would outlast any patience."""
        self._is_stopping = True
        for task in self._followers:
            if task is not None:
                task.cancel()

    def _begun(self, orders: Sequence[pb.Order], now: datetime) -> pb.FollowReply:
        """Begin the orders; the machine then, and which it refuses."""
        refusals = {}
        for number, order in enumerate(orders):
            try:
                self._begin(wire.order_from_message(order), now)
            except VipuError as error:
                refusals[number] = error
        health = replace(self._machine.health(now), rival=self._rival_at(now))
        return wire.outcome_to_message(Outcome(health, refusals))

    def _begin(self, order: Order, now: datetime) -> None:
        if isinstance(order, Configure):
            made = order.configuration
            self._machine.configure(made, now)
            devices = [device.index for device in made.devices]
            self._log.info("partition configured", partition=made.partition, ipus=devices)
        elif isinstance(order, Release):
            self._machine.release(order.partition, now)
            self._log.info("partition released", partition=order.partition)
        else:
            self._machine.reset(order.partition, order.generation, now)
            self._log.info("partition reset", partition=order.partition)

    async def InjectFault(
        self, request: pb.InjectFaultRequest, context: _Context
    ) -> pb.InjectFaultReply:
        """Let something go wrong; a hung agent answers this, too."""
        simulated = await self._simulation(context)

        def inject(now: datetime) -> pb.InjectFaultReply:
            fault = wire.fault_from_message(request, now)
            simulated.inject(fault, now)
            self._log.warning("fault injected", kind=fault.kind, ipu=fault.ipu, link=fault.link)
            return pb.InjectFaultReply()

        return await self._answer_now(inject, context)

    async def RepairFaults(
        self, request: pb.RepairFaultsRequest, context: _Context
    ) -> pb.RepairFaultsReply:
        """End the faults of the machine, or of one IPU; a hung agent answers this, too."""
        simulated = await self._simulation(context)

        def repair(now: datetime) -> pb.RepairFaultsReply:
            del now
            simulated.repair(request.ipu if request.HasField("ipu") else None)
            self._log.info("faults repaired")
            return pb.RepairFaultsReply()

        return await self._answer_now(repair, context)

    async def RunTest(
        self, request: diagnostics_pb.RunTestRequest, context: _Context
    ) -> diagnostics_pb.RunTestReply:
        """Test the machine, or one IPU of it."""

        def run(now: datetime) -> diagnostics_pb.RunTestReply:
            kind = wire.test_kind_from_message(request.kind)
            ipu = request.ipu if request.HasField("ipu") else None
            problem = self._machine.test(kind, ipu, now)
            self._log.info("test ran", kind=kind, ipu=ipu, problem=problem)
            return diagnostics_pb.RunTestReply(problem=problem)

        return await self._answer_holder(run, context)

    async def wait_while_hung(self) -> None:
        """Return once the machine's agent is not hung."""
        # No event: the end of a hang is an instant of the simulated machine's clock.
        while self._simulated is not None and self._simulated.is_hung(self._clock()):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _simulation(self, context: _Context) -> SimulatedMachine:
        if self._simulated is None:
            await context.abort(
                StatusCode.UNIMPLEMENTED, "this machine is real: it has no faults on command"
            )
        return self._simulated

    async def _answer(self, call: Callable[[datetime], _Answer], context: _Context) -> _Answer:
        await self.wait_while_hung()
        return await self._answer_now(call, context)

    async def _answer_holder(
        self, call: Callable[[datetime], _Answer], context: _Context
    ) -> _Answer:
        """Answer unless another controller uses this agent."""

        def held(now: datetime) -> _Answer:
            self._hold(dict(context.invocation_metadata() or ()), context.peer(), now)
            return call(now)

        return await self._answer(held, context)

    def _hold(self, headers: Mapping[str, str | bytes], peer: str, now: datetime) -> None:
        """Take note of the controller that calls; raises NotReady for one that may not."""
        caller, known = str(headers.get(CONTROLLER_HEADER, "")), self._holder
        try:
            self._holder = next_holder(known, caller, now, takes_over=TAKE_OVER_HEADER in headers)
        except NotReady as error:
            rival = rival_of(caller, peer)
            if self._rival_at(now) is None:
                self._refused.forget()
            if self._refused.is_new(rival.host):
                self._log.warning(
                    "controller refused",
                    controller=rival.controller,
                    host=rival.host,
                    problem=str(error),
                )
            self._rival, self._rival_until = rival, now + HELD_FOR
            raise
        if self._holder and known and self._holder.controller != known.controller:
            self._rival = None
            self._log.warning(
                "another controller has taken over",
                controller=self._holder.controller,
                before=known.controller,
            )

    def _rival_at(self, now: datetime) -> Rival | None:
        """Return the controller that was refused of late; it asks every few seconds."""
        return self._rival if self._rival_until and now < self._rival_until else None

    async def _answer_now(self, call: Callable[[datetime], _Answer], context: _Context) -> _Answer:
        now = self._clock()
        try:
            answer = call(now)
            if self._ipuof is not None and self._simulated is not None:
                self._ipuof.follow(self._simulated.open_devices(now))
            return answer
        except VipuError as error:
            await context.abort(code_of(error), details_of(error))
        # The outermost frame of a call: gRPC would answer with the bare words of the exception.
        except Exception:  # noqa: BLE001  # logged
            self._log.exception("call failed")
            await context.abort(
                StatusCode.INTERNAL, "internal error of the agent; its log has the details"
            )
