"""glue: the components whose signs of life stand in PostgreSQL: also a process without a Kubernetes
account, such as the worker, can judge them.

The prober polls the proxy for all V-IPU controllers. While the prober is down, nothing newer is
known of them, and while the proxy is down, nothing of the controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.conf import settings

from dashboard import components
from dashboard.components import Component
from ipuhub.models import WatchCheckpoint
from ipuhub.text import spell_duration
from partitions.selectors import capacity_now
from usage.models import MonitorRound

if TYPE_CHECKING:
    from datetime import datetime

PROXY: Final = "V-IPU Proxy"
PROBER: Final = "Prober"
_CAPACITY: Final = "capacity"
_STALE_SECONDS: Final = 90  # nine polls


def read_recorded(now: datetime) -> list[Component]:
    """Return prober, monitor, proxy and V-IPU controllers, as far as PostgreSQL knows them."""
    prober = judge_prober(Component(PROBER, components.UNKNOWN, ""), now)
    proxy = _read_proxy(prober, now)
    return [prober, judge_monitor(now), proxy, *_read_controllers(proxy)]


def judge_prober(lease: Component, now: datetime) -> Component:
    """Return the prober by the positions of its watches, beside what its Lease says."""
    positions = WatchCheckpoint.objects.exclude(name=_CAPACITY)
    return components.of_prober(lease, positions.values_list("position_at", flat=True), now)


def judge_monitor(now: datetime) -> Component:
    """Return the monitor by its last round."""
    last = MonitorRound.objects.order_by("-ended_at").values_list("ended_at", "problem").first()
    ended_at, problem = last or (None, "")
    return components.of_monitor(ended_at, problem, settings.MONITOR_ROUND_SECONDS, now)


def _read_proxy(prober: Component, now: datetime) -> Component:
    polled = WatchCheckpoint.objects.filter(name=_CAPACITY).values_list("position_at", flat=True)
    at = polled.first()
    if prober.state != components.UP or at is None:
        return Component(PROXY, components.UNKNOWN, "the prober does not poll it")
    age = (now - at).total_seconds()
    if age > _STALE_SECONDS:
        said = f"has not answered the prober for {spell_duration(age)}"
        return Component(PROXY, components.DOWN, said, since=at)
    return Component(PROXY, components.UP, "answers", since=at)


def _read_controllers(proxy: Component) -> list[Component]:
    is_known = proxy.state == components.UP
    answers = {True: (components.UP, "answers"), False: (components.DOWN, "does not answer")}
    unknown = (components.UNKNOWN, "the proxy does not say")
    return [
        Component(
            f"V-IPU controller {each.controller}",
            *(answers[each.reachable] if is_known else unknown),
            since=each.at,
        )
        for each in capacity_now()
    ]
