"""io: the gRPC client of an agent; every call has a deadline."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self, TypeVar

from google.protobuf.message import Message
from grpc import RpcError, StatusCode, aio, ssl_channel_credentials

from partitions.vipu.agent import wire
from partitions.vipu.agent.holder import CONTROLLER_HEADER, TAKE_OVER_HEADER
from partitions.vipu.codes import error_of
from partitions.vipu.errors import NoAnswer, Unavailable
from partitions.vipu.protos import vipu_agent_pb2 as pb
from partitions.vipu.protos import vipu_diagnostics_pb2 as diagnostics_pb
from partitions.vipu.protos.vipu_agent_pb2_grpc import AgentServiceStub
from partitions.vipu.protos.vipu_diagnostics_pb2_grpc import AgentDiagnosticsServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from partitions.vipu.agent.machine import (
        Fault,
        Health,
        Inventory,
        MachineTest,
        Order,
        Outcome,
    )
    from partitions.vipu.client import TlsFiles
    from partitions.vipu.errors import VipuError
    from partitions.vipu.protos.vipu_agent_pb2_grpc import AgentServiceAsyncStub
    from partitions.vipu.protos.vipu_diagnostics_pb2_grpc import AgentDiagnosticsServiceAsyncStub

_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # Found again soon after it was down; gRPC's own backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A machine that vanished without a word is noticed by a ping, not by TCP after a quarter of an
    # hour: until then no new connection would be tried.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Agents stand in the management network; a web proxy of the environment has no way there.
    ("grpc.enable_http_proxy", 0),
)
# A busy machine answers a test later than a heartbeat.
TEST_SECONDS: Final = 10.0
_Question = TypeVar("_Question", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)


class AgentClient:
    """One agent, over one connection that comes back by itself.

    `address` is "host:port". Every method raises a VipuError: NoAnswer when the agent does not
    answer within `deadline_seconds` (a test: 10 s at least), else what the agent says. `tls` is
    called for each call: with other files a new connection is opened. `controller` is the id of the
    controller that calls. While `takes_over` is set, its next question takes the agent from
    another.
    """

    def __init__(
        self,
        address: str,
        *,
        deadline_seconds: float = 2.0,
        tls: Callable[[], TlsFiles] | None = None,
        controller: str = "",
    ) -> None:
        self.address = address
        self.takes_over = False
        self._controller = controller
        self._deadline_seconds = deadline_seconds
        self._tls = tls
        self._used: TlsFiles | None = None
        self._channel: aio.Channel | None = None
        self._methods: AgentServiceAsyncStub | None = None
        self._following: aio.StreamStreamCall[pb.Orders, pb.FollowReply] | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; a later call opens it again."""
        self._hang_up()
        channel, self._channel, self._methods = self._channel, None, None
        if channel is not None:
            await channel.close(None)

    async def inventory(self) -> Inventory:
        """Return the inventory of the machine."""
        answer = await self._call((await self._stub()).GetInventory, pb.GetInventoryRequest())
        return wire.inventory_from_message(answer)

    async def health(self) -> Health:
        """The machine's partitions and faults."""
        return (await self.follow()).health

    async def follow(self, *orders: Order) -> Outcome:
        """Have the machine begin these orders, in this order; how it is then.

        One call stays open from one question to the next, which costs a fifth of a call for each.
        """
        try:
            async with asyncio.timeout(self._deadline_seconds), self._turn:
                with self._closing_as_error():
                    return await self._followed(orders)
        except TimeoutError as error:
            raise self._late(self._deadline_seconds) from error

    async def _followed(self, orders: Sequence[Order]) -> Outcome:
        stub, message = await self._stub(), wire.orders_to_message(orders)
        try:
            try:
                call = self._opened_call(stub)
                await call.write(message)
            except aio.AioRpcError as error:
                if not _had_ended(error):
                    raise
                self._hang_up()
                call = self._opened_call(stub)  # on which an agent that refuses us says so
                await call.write(message)
            answer = await call.read()
        except BaseException as error:
            # What is still on its way would answer the next question.
            self._hang_up()
            if isinstance(error, aio.AioRpcError):
                raise self._error_of(error, self._deadline_seconds) from error
            if isinstance(error, asyncio.InvalidStateError | aio.UsageError):
                raise NoAnswer(f"agent {self.address} has ended the call") from error
            raise
        if isinstance(answer, pb.FollowReply):
            if self.takes_over:  # once: afterwards another may take over from us
                self.takes_over = False
                self._hang_up()
            return wire.outcome_from_message(answer)
        self._hang_up()
        raise NoAnswer(f"agent {self.address} has ended the call")

    def _opened_call(
        self, stub: AgentServiceAsyncStub
    ) -> aio.StreamStreamCall[pb.Orders, pb.FollowReply]:
        if self._following is None or self._following.done():
            self._following = stub.Follow(None, wait_for_ready=True, metadata=self._headers)
        return self._following

    def _hang_up(self) -> None:
        call, self._following = self._following, None
        if call is not None:
            call.cancel()

    async def inject(self, fault: Fault, duration: timedelta | None = None) -> None:
        """Let a simulated machine fail, for `duration` or until it is repaired."""
        await self._call((await self._stub()).InjectFault, wire.fault_to_message(fault, duration))

    async def repair(self, ipu: int | None = None) -> None:
        """End all faults of a simulated machine, or all faults of one IPU."""
        await self._call((await self._stub()).RepairFaults, pb.RepairFaultsRequest(ipu=ipu))

    async def test(self, kind: MachineTest, ipu: int | None) -> str:
        """Test the machine, or one IPU: what is wrong, empty if nothing is; raises NotReady while
        a partition uses what the test would disturb."""
        await self._stub()
        channel = self._channel
        if channel is None:
            raise self._closed()
        stub: AgentDiagnosticsServiceAsyncStub = AgentDiagnosticsServiceStub(channel)
        question = diagnostics_pb.RunTestRequest(kind=wire.TEST_NUMBERS[kind], ipu=ipu)
        seconds = max(self._deadline_seconds, TEST_SECONDS)
        return (await self._call(stub.RunTest, question, seconds)).problem

    async def _stub(self) -> AgentServiceAsyncStub:
        files = self._tls() if self._tls else None
        if files is not self._used:
            await self.close()
        if self._methods is None:
            self._used, self._channel = files, self._opened(files)
            self._methods = AgentServiceStub(self._channel)
        return self._methods

    @property
    def _headers(self) -> Sequence[tuple[str, str]]:
        if not self._controller:
            return ()
        taking = ((TAKE_OVER_HEADER, "yes"),) if self.takes_over else ()
        return (CONTROLLER_HEADER, self._controller), *taking

    def _opened(self, files: TlsFiles | None) -> aio.Channel:
        if files is None:
            return aio.insecure_channel(self.address, options=_OPTIONS)
        credentials = ssl_channel_credentials(files.ca, files.key, files.certificate)
        return aio.secure_channel(self.address, credentials, options=_OPTIONS)

    async def _call(
        self,
        method: Callable[..., aio.UnaryUnaryCall[_Question, _Answer]],
        question: _Question,
        seconds: float | None = None,
    ) -> _Answer:
        seconds = seconds or self._deadline_seconds
        try:
            # Waiting for the connection counts as waiting for the answer: a short silence of the
            # network is no failure.
            with self._closing_as_error():
                return await method(
                    question,
                    timeout=seconds,
                    wait_for_ready=True,
                    metadata=self._headers,
                )
        except aio.AioRpcError as error:
            raise self._error_of(error, seconds) from error
        except RpcError as error:
            raise NoAnswer(f"agent {self.address}: {error}") from error

    @contextmanager
    def _closing_as_error(self) -> Iterator[None]:
        """Raise Unavailable when the connection is closed during a call.

        gRPC reports that as a cancellation, which would end the task that follows the agent.
        """
        try:
            yield
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._closed() from error

    def _closed(self) -> Unavailable:
        return Unavailable(f"agent {self.address}: the connection was closed; try again")

    def _error_of(self, error: aio.AioRpcError, seconds: float) -> VipuError:
        if error.code() is StatusCode.DEADLINE_EXCEEDED:
            return self._late(seconds)
        return error_of(error.code(), error.details() or str(error.code()))

    def _late(self, seconds: float) -> NoAnswer:
        return NoAnswer(f"agent {self.address} did not answer within {seconds:g} s")


def _had_ended(error: aio.AioRpcError) -> bool:
    """Return whether the agent had ended the call before it was written to.

    gRPC learns that with the next turn of the event loop; until then it names an internal error.
    """
    return error.code() is StatusCode.INTERNAL and "execute_batch" in str(
        error.debug_error_string()
    )
