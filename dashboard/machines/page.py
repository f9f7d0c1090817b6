"""glue: the pages of an IPU-Machine and of an IPU: current state and the last day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.http import Http404
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.fleetkept import jobs_in, known_of_reading
from dashboard.fleetmap import Reader
from dashboard.live import live_reader
from dashboard.machines.facts import find_machine, is_open
from dashboard.machines.heartbeat import heard_at, read_heartbeat, sensor_texts, sensors_of
from dashboard.machines.past import read_events, read_stays
from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.pollcache import rows_now
from ipuhub.web.problems import takes
from ipuhub.web.requests import live_page, wants_fragment
from partitions.vipu.telemetry import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.live import LiveState
    from dashboard.machines.facts import MachineFacts
    from dashboard.machines.past import Stay
    from ipuhub.web.access import Scope

NO_MACHINE: Final = "No V-IPU controller has an IPU-Machine of this name."
NO_IPU: Final = "The IPU-Machine has no IPU of this position."


@dataclass(frozen=True, slots=True)
class Seen:
    """A machine as of one reading; None: nothing is known yet of its controller's machines, or it
    `is_gone`: the reading has no such machine.
    `read_at`: when that was read, `problem`: why nothing newer is."""

    machine: MachineFacts | None
    read_at: datetime | None
    problem: str
    is_gone: bool = False

    @property
    def heartbeat(self) -> Heartbeat:
        """The last heartbeat of its agent, requested now; empty if the controller or agent is known
        not to answer."""
        found = self.machine
        if found is None or found.silent or self.problem:
            return Heartbeat()
        return read_heartbeat(found.controller, found.name)


def see_machine(scope: Scope, controller: str, name: str, now: datetime) -> Seen:
    """Return the machine for a reader. Raises Http404 for a name that none can have."""
    if "\0" in controller + name:  # which no row can have
        raise Http404(NO_MACHINE)
    state = live_reader().read(now)
    reader = Reader(scope.covers, scope.sees_all, now)
    fleet = state.fleet.value
    found = find_machine(fleet, jobs_in(state, scope, now), reader, controller, name)
    is_gone = found is None and not is_open(fleet, controller)
    problem = state.fleet.sentence(in_full=scope.sees_all)
    return Seen(found, state.fleet.read_at, problem, is_gone)


def require_machine(seen: Seen, stays: Sequence[Stay]) -> None:
    """Raise Http404 if the fleet has no such machine, and none is recorded in the last day."""
    if seen.is_gone and not stays:
        raise Http404(NO_MACHINE)


@require_safe
@signed_in
@takes()
def machine_page(request: HttpRequest, controller: str, name: str) -> HttpResponseBase:
    """Show a machine's IPUs and its last day; only the changing part for htmx."""
    return _answer(request, controller, name, None)


@require_safe
@signed_in
@takes()
def ipu_page(request: HttpRequest, controller: str, name: str, position: int) -> HttpResponseBase:
    """Show one IPU and its last day; only the changing part for htmx."""
    return _answer(request, controller, name, position)


def _heartbeat_of(state: LiveState, controller: str, name: str) -> Heartbeat:
    """Return the same as `Seen.heartbeat`, before the machine is read."""
    found = next(
        (c for c in state.fleet.value.get("controllers") or () if c["address"] == controller), None
    )
    is_asked = found is not None and not found["message"] and not state.fleet.problem
    if found is None or not is_asked or all(each["agent"] != name for each in found["machines"]):
        return Heartbeat()
    return read_heartbeat(controller, name)


def _answer(
    request: HttpRequest, controller: str, name: str, position: int | None
) -> HttpResponseBase:
    now, scope = timezone.now(), scope_of(request.user)
    heartbeat = None
    if wants_fragment(request) and (rows := rows_now()) is not None:
        state = live_reader().read(now)
        heartbeat = _heartbeat_of(state, controller, name)
        sensors = (heard_at(heartbeat), heartbeat.sensors)
        if same := known_of_reading(request, state, scope, now, rows, sensors):
            return same
    seen = see_machine(scope, controller, name, now)
    machine, ipu = seen.machine, None
    if machine is not None and position is not None:
        ipu = machine.ipu(position)
        if ipu is None:
            raise Http404(NO_IPU)
    stays = read_stays(scope, controller, name, now, position)
    require_machine(seen, stays)
    heartbeat = heartbeat or seen.heartbeat
    ipus = (ipu,) if ipu else machine.ipus if machine else ()
    context: dict[str, Any] = {
        "controller": controller,
        "name": name,
        "position": position,
        "machine": machine,
        "ipu": ipu,
        "ipus": ipus,
        "tiles": [(each, sensor_texts(sensors_of(heartbeat, each.device))) for each in ipus],
        "heard_at": heard_at(heartbeat),
        "stays": stays,
        "is_gone": seen.is_gone,
        "events": read_events(controller, name, now, ipu.device if ipu else None),
        "problem": seen.problem,
        "stale_since": seen.read_at if seen.problem else None,
        "sees_all": scope.sees_all,
    }
    templates = ("machines/machine.html", "machines/_machine.html")
    return live_page(request, templates, context, seen.read_at, now=now, here=request.path)
