"""io: machine tests as long-running operations: one operation at a time, on several machines at
once.

Steps run on the agents; without agents the controller tests its simulated machines. The IPUs of a
machine are tested one after the other, so an agent that hangs delays only its own results: after
the first step without an answer its other steps are skipped. So are IPUs that a partition uses.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from partitions.vipu.agent.machine import MachineTest
from partitions.vipu.errors import (
    InvalidRequest,
    NoAnswer,
    NotFound,
    NotReady,
    VipuError,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from partitions.vipu.server.controller import Controller

KEPT: Final = 20
AT_ONCE: Final = 16  # machines that are tested at the same time
_STOP_SECONDS: Final = 5.0
_SILENT: Final = "the agent has not answered the step before"

log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """The outcome of one step."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class DiagnosticState(StrEnum):
    """The progress of a test."""

    RUNNING = "RUNNING"
    PASSED = "PASSED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True)
class Step:
    """The target of a single test: a machine, or one IPU of it."""

    agent: str
    ipu: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a step, and the cause if it did not pass."""

    step: Step
    outcome: Outcome
    message: str = ""


@dataclass(eq=False, slots=True)
class Diagnostic:
    """One test. Its threads add results, `done` by the number of the step; `state` is RUNNING until
    `ended_at` is set."""

    id: str
    kind: MachineTest
    steps: tuple[Step, ...]
    started_at: datetime
    done: dict[int, Result] = field(default_factory=dict)
    state: DiagnosticState = DiagnosticState.RUNNING
    ended_at: datetime | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def results(self) -> list[Result]:
        """The results so far, in the order of the steps."""
        return [result for _, result in sorted(self.done.copy().items())]

    def count(self, outcome: Outcome) -> int:
        """Return the number of steps with this result."""
        return sum(result.outcome is outcome for result in self.results)


class Tester(Protocol):
    """The machines on which steps run."""

    def test(self, agent: str, kind: MachineTest, ipu: int | None) -> str:
        """Return the problem, empty if there is none; raises VipuError."""
        ...


class SimulatedTester:
    """Tests machines that have no agents: their faults are what the controller knows of them."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def test(self, agent: str, kind: MachineTest, ipu: int | None) -> str:
        """Return the problem; raises NotReady while a partition uses what the test would
        disturb."""
        state = self._controller.state
        ipus = [chip for chip in state.occupancy.topology.ipus if chip.agent == agent]
        tested = [chip for chip in ipus if ipu in (None, chip.index)]
        if kind is not MachineTest.CONNECTIVITY:
            for chip in tested:
                if holder := state.occupancy.holder(chip.id):
                    raise NotReady(f"partition {holder} uses it; remove that first")
        machine = state.machines.get(agent)
        if machine is None or (kind is MachineTest.CONNECTIVITY and not machine.lost):
            return ""
        faults = dict.fromkeys(machine.fault_of(chip.index) for chip in tested)
        return "; ".join(filter(None, faults))


class Diagnostics:
    """Runs tests and keeps the last results; safe to call from many threads."""

    def __init__(self, controller: Controller, tester: Tester, *, at_once: int = AT_ONCE) -> None:
        self._controller = controller
        self._tester = tester
        self._at_once = at_once
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Diagnostic] = OrderedDict()
        self._count = 0
        self._thread: threading.Thread | None = None

    def start(self, kind: MachineTest, agents: Collection[str]) -> Diagnostic:
        """Begin a test, of all agents if none is named.

        Raises InvalidRequest for an agent that does not exist, NotReady while another test runs.
        """
        steps = tuple(self._steps(kind, agents))
        with self._lock:
            for other in self._kept.values():
                if other.state is DiagnosticState.RUNNING:
                    raise NotReady(
                        f"diagnostic {other.id} runs ({len(other.results)} of {len(other.steps)} "
                        f"steps): wait for it, or cancel it with vipu-admin diagnostics cancel "
                        f"{other.id}"
                    )
            self._count += 1
            made = Diagnostic(f"d{self._count}", kind, steps, self._controller.clock())
            self._kept[made.id] = made
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            self._thread = threading.Thread(
                target=self._work, args=(made,), name="diagnostics", daemon=True
            )
            self._thread.start()
        self._controller.events.note("diagnostic started", diagnostic=made.id, kind=kind)
        return made

    def get(self, diagnostic_id: str) -> Diagnostic:
        """The test of that id; raises NotFound."""
        with self._lock:
            try:
                return self._kept[diagnostic_id]
            except KeyError:
                raise NotFound(
                    f"diagnostic_id: there is no diagnostic {quoted(diagnostic_id)}; the last "
                    f"{KEPT} are kept: see vipu-admin diagnostics list"
                ) from None

    def list(self) -> list[Diagnostic]:
        """The tests that are kept, the oldest first."""
        with self._lock:
            return list(self._kept.values())

    def cancel(self, diagnostic_id: str) -> None:
        """End a test after the steps that run; raises NotFound, or NotReady if it has ended."""
        found = self.get(diagnostic_id)
        if found.state is not DiagnosticState.RUNNING:
            raise NotReady(f"diagnostic {found.id} has ended: {found.state}")
        found.cancelled.set()

    def stop(self) -> None:
        """Cancel what runs and wait for its steps, up to 5 s."""
        with self._lock:
            thread = self._thread
            for test in self._kept.values():
                test.cancelled.set()
        if thread is not None:
            thread.join(_STOP_SECONDS)

    def _steps(self, kind: MachineTest, agents: Collection[str]) -> Iterable[Step]:
        ipus: dict[str, list[int]] = {}
        for ipu in self._controller.topology.ipus:
            ipus.setdefault(ipu.agent, []).append(ipu.index)
        if unknown := [agent for agent in agents if agent not in ipus]:
            raise InvalidRequest(
                f"agent_ids: there is no agent {quoted(unknown[0])}; see vipu-admin list agents"
            )
        for agent in dict.fromkeys(agents or ipus):
            if kind is MachineTest.IPU_SELF_TEST:
                yield from (Step(agent, index) for index in sorted(ipus[agent]))
            else:
                yield Step(agent)

    def _work(self, diagnostic: Diagnostic) -> None:
        machines: dict[str, list[int]] = {}
        for number, step in enumerate(diagnostic.steps):
            machines.setdefault(step.agent, []).append(number)
        pending: deque[Sequence[int]] = deque(machines.values())
        workers = [
            threading.Thread(target=self._test_machines, args=(diagnostic, pending), daemon=True)
            for _ in range(min(self._at_once, len(machines)))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        failed = diagnostic.count(Outcome.FAILED)
        state = DiagnosticState.FAILED if failed else DiagnosticState.PASSED
        if diagnostic.count(Outcome.SKIPPED) == len(diagnostic.steps):
            state = DiagnosticState.SKIPPED
        if len(diagnostic.results) < len(diagnostic.steps):
            state = DiagnosticState.CANCELLED
        self._controller.events.note(
            "diagnostic ended",
            is_bad=bool(failed),
            diagnostic=diagnostic.id,
            state=state,
            failed=failed,
        )
        diagnostic.ended_at = self._controller.clock()
        diagnostic.state = state

    def _test_machines(self, diagnostic: Diagnostic, pending: deque[Sequence[int]]) -> None:
        """Test one machine after the other until none is left, or the test is cancelled."""
        with suppress(IndexError):  # nothing left
            while not diagnostic.cancelled.is_set():
                self._test_machine(diagnostic, pending.popleft())

    def _test_machine(self, diagnostic: Diagnostic, numbers: Sequence[int]) -> None:
        remaining = iter(numbers)
        for number in remaining:
            if diagnostic.cancelled.is_set():
                return
            step = diagnostic.steps[number]
            try:
                diagnostic.done[number] = self._run(diagnostic.kind, step)
            except NoAnswer as error:
                diagnostic.done[number] = Result(step, Outcome.FAILED, str(error))
                for later in remaining:
                    skipped = Result(diagnostic.steps[later], Outcome.SKIPPED, _SILENT)
                    diagnostic.done[later] = skipped

    def _run(self, kind: MachineTest, step: Step) -> Result:
        """Do one step; raises NoAnswer."""
        try:
            problem = self._tester.test(step.agent, kind, step.ipu)
        except NoAnswer:
            raise
        except NotReady as error:
            return Result(step, Outcome.SKIPPED, str(error))
        except VipuError as error:
            return Result(step, Outcome.FAILED, str(error))
        except Exception:  # the outermost frame of a step: the others go on
            log.exception("step of a diagnostic failed", agent=step.agent, kind=kind)
            return Result(step, Outcome.FAILED, "internal error; the log of vipu-server has it")
        return Result(step, Outcome.FAILED if problem else Outcome.PASSED, problem)
