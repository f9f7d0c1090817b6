"""domain: the log of a simulated container, generated from its pod and run, never stored.

The API server answers `kubectl logs` from it, and a stand-in node copies its end into the status of
a failed container, as a kubelet does (FallbackToLogsOnError).

The annotation `sim/log` is the whole log of a pod's first container, `sim/log.<name>` the log of
the named container; `sim/log-lines` (a number) adds that many lines at the beginning.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ipuhub.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

LOG_ANNOTATION: Final = "sim/log"
_LINES_ANNOTATION: Final = "sim/log-lines"
_LONGEST_MESSAGE: Final = 2048  # bytes of the log that FallbackToLogsOnError copies
_MOST_LINES: Final = 80  # and lines
_JOB: Final = "graphcore.ai/ipujob-uid"
_ROLE: Final = "graphcore.ai/role"
_GATE: Final = "ipuhub-launcher"
_SIMULATED: Final = "stand-in node: this output is simulated, no process runs"
_SIGTERM_CODE: Final = 143
_SIGKILL_CODE: Final = 137
_STEP_SECONDS: Final = {"launcher": 2, "worker": 10}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a container; `ended` None: it still runs."""

    started: datetime
    ended: datetime | None = None
    code: int = 0


class StandInLog:
    """The lines of one run up to `now`; a line is made when it is read, so that any length fits."""

    def __init__(self, pod: Mapping[str, Any], container: str, run: Run, now: datetime) -> None:
        self._run, self._container = run, container
        annotations = pod["metadata"].get("annotations") or {}
        is_first = container == pod["spec"]["containers"][0]["name"]
        given = annotations.get(f"{LOG_ANNOTATION}.{container}")
        if given is None and is_first:
            given = annotations.get(LOG_ANNOTATION)
        self._kind = "given" if given is not None else _kind_of(pod, container, is_first=is_first)
        number = str(annotations.get(_LINES_ANNOTATION) or "")
        self._added = int(number) if number.isdecimal() and is_first else 0
        self._head = given.splitlines() if given is not None else self._beginning(pod)
        self._end = self._ending() if run.ended is not None and given is None else []
        self._steps = 0
        if self._kind in _STEP_SECONDS:
            seconds = ((run.ended or now) - run.started).total_seconds()
            self._steps = max(int(seconds // _STEP_SECONDS[self._kind]), 0)

    def __len__(self) -> int:
        return len(self._head) + self._added + self._steps + len(self._end)

    def line(self, index: int) -> tuple[datetime, str]:
        """Return when a line was written, and the line."""
        began = len(self._head) + self._added
        if index < began:
            at = self._run.started + timedelta(microseconds=index)
            if index < len(self._head):
                return at, self._head[index]
            number = index - len(self._head) + 1
            digest = hashlib.sha512(str(number).encode()).hexdigest()
            return at, f"shard {number:>6} of {self._added} loaded, sha512 {digest}"
        step = index - began
        if step < self._steps:
            seconds = (step + 1) * _STEP_SECONDS[self._kind]
            return self._run.started + timedelta(seconds=seconds), self._step(step + 1)
        last = step - self._steps
        at = (self._run.ended or self._run.started) + timedelta(microseconds=last)
        return at, self._end[last]

    def first_since(self, at: datetime) -> int:
        """Return the index of the first line that is not older than `at`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.line(middle)[0] < at:
                low = middle + 1
            else:
                high = middle
        return low

    def lines(self, first: int = 0) -> Iterator[tuple[datetime, str]]:
        """The lines from `first` on."""
        return (self.line(index) for index in range(first, len(self)))

    def message(self) -> str:
        """The end of the log, as a kubelet copies it into the status of a failed container."""
        first = max(len(self) - _MOST_LINES, 0)
        text = "\n".join(line for _, line in self.lines(first))
        return text.encode()[-_LONGEST_MESSAGE:].decode(errors="ignore")

    def _beginning(self, pod: Mapping[str, Any]) -> list[str]:
        if self._kind == "gate":
            return [_SIMULATED, f"waiting until {_workers(pod)} worker pods are ready"]
        if self._kind == "launcher":
            job = str(pod["metadata"]["name"]).removesuffix("-launcher")
            count = _workers(pod)
            hosts = ", ".join(f"{job}-worker-{number}" for number in range(min(count, 4)))
            more = f" and {count - 4} more" if count > 4 else ""
            return [
                _SIMULATED,
                f"mpirun: ranks on {hosts}{more}",
                "compiling the graph: 100 %",
            ]
        if self._kind == "worker":
            return [_SIMULATED, "worker is ready and waits for the launcher"]
        return [f"{format_time(self._run.started)} {self._container}: started"]

    def _step(self, number: int) -> str:
        if self._kind == "worker":
            return f"IPUs {80 + number * 7 % 15} % busy, {38 + number % 5} C, no errors"
        loss = 0.35 + 1.95 / (1 + number / 40)
        return f"step {number * 20:>7}  loss {loss:.4f}  {1780 + number * 37 % 90} samples/s"

    def _ending(self) -> list[str]:
        code, kind = self._run.code, self._kind
        if kind == "plain":
            moment = format_time(self._run.ended or self._run.started)
            return [f"{moment} {self._container}: ended with exit code {code}"]
        if kind == "gate":
            text = "all workers are ready" if code == 0 else f"gave up (exit code {code})"
            return [text]
        if code == 0:
            return (
                ["finished: all ranks ended with exit code 0"] if kind == "launcher" else ["done"]
            )
        if code in (_SIGTERM_CODE, _SIGKILL_CODE):
            return ["Terminated" if code == _SIGTERM_CODE else "Killed"]
        return [
            "Traceback (most recent call last):",
            '  File "/app/train.py", line 88, in <module>',
            "    loss = step(batch)",
            "RuntimeError: the device returned an error while running the graph",
            f"rank 0 ended with exit code {code}; the other ranks were stopped",
        ]


def _kind_of(pod: Mapping[str, Any], container: str, *, is_first: bool) -> str:
    labels = pod["metadata"].get("labels") or {}
    if _JOB not in labels:
        return "plain"
    if container == _GATE:
        return "gate"
    role = labels.get(_ROLE, "")
    return role if is_first and role in _STEP_SECONDS else "plain"


def _workers(pod: Mapping[str, Any]) -> int:
    for container in pod["spec"].get("initContainers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == "IPUHUB_WORKERS":
                text = str(variable.get("value") or "")
                return int(text) if text.isdecimal() else 1
    return 1
