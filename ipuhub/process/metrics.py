"""io: one process' metrics, made from their table, and what each process says of itself.

Metrics that no label's text can break or fill memory with, whoever chose that text.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

from ipuhub.process import metrictable
from ipuhub.process.metrictable import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.informer import Informer
    from ipuhub.process.health import Health
    from ipuhub.process.leadership import Leadership
    from ipuhub.process.metrictable import Metric

MOST_SERIES: Final = 1000  # of one metric; what is more is counted together
LONGEST_TEXT: Final = 200  # characters of one label
OTHER: Final = "other"


def safe_text(value: object) -> str:
    """`value` as a label that can be written down: a lone surrogate would stop every later
    answer, and a long text would be held for ever."""
    text = str(value)[:LONGEST_TEXT]
    return text.encode(errors="backslashreplace").decode()


class _Bounded(MetricWrapperBase):
    def labels(self, *labelvalues: object, **labelkwargs: object) -> Self:
        """The series of these labels; with as many as there may be, the series `other`."""
        given = labelvalues or tuple(labelkwargs[name] for name in self._labelnames)
        texts = tuple(map(safe_text, given))
        if texts not in self._metrics and len(self._metrics) >= MOST_SERIES:
            texts = (OTHER,) * len(texts)
        return super().labels(*texts)


class BoundedCounter(_Bounded, Counter):
    """A counter."""


class BoundedGauge(_Bounded, Gauge):
    """A gauge."""


class BoundedHistogram(_Bounded, Histogram):
    """A histogram."""


if TYPE_CHECKING:
    Values = Mapping[Any, float]  # by tuples of label values
log = structlog.get_logger(__name__)
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each one, that nobody asks for


class Meters:
    """The metrics of `tables`. Names of two `Meters` that answer together must not overlap."""

    def __init__(self, *tables: Iterable[Metric]) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._counted: dict[tuple[str, ...], float] = {}
        self._fills: list[Callable[[], None]] = []
        self._included: list[Meters] = []
        for metric in (one for table in tables for one in table if not one.is_foreign):
            self._make(metric)

    def counter(self, metric: Metric) -> Counter:
        """The counter of the table."""
        return self._counters[metric.name]

    def gauge(self, metric: Metric) -> Gauge:
        """The gauge of the table."""
        return self._gauges[metric.name]

    def histogram(self, metric: Metric) -> Histogram:
        """The histogram of the table."""
        return self._histograms[metric.name]

    def set(self, metric: Metric, values: Values) -> None:
        """Make these all the values of a gauge, by its labels; what has one series is added up."""
        gauge = self.gauge(metric)
        gauge.clear()
        for labels, value in values.items():
            if labels:
                gauge.labels(*labels).inc(value)
            else:
                gauge.set(value)

    def count_up(self, metric: Metric, totals: Values) -> None:
        """Bring a counter to totals that something else counts."""
        counter = self.counter(metric)
        for labels, total in totals.items():
            key = (metric.name, *labels)
            child = counter.labels(*labels) if labels else counter
            child.inc(max(total - self._counted.get(key, 0.0), 0.0))
            self._counted[key] = total

    def at_scrape(self, fill: Callable[[], None]) -> None:
        """Call `fill` before each answer: what costs nothing as long as nobody asks."""
        self._fills.append(fill)

    def include(self, other: Meters) -> None:
        """Answer with the metrics of `other`, too."""
        self._included.append(other)

    def with_process(self) -> None:
        """Tell about memory, processor time and open files."""
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format. A faulty fill costs its own metrics only."""
        for fill in self._fills:
            try:
                fill()
            except Exception:
                log.exception("metrics not filled")
        return b"".join([generate_latest(self._registry), *(o.render() for o in self._included)])

    def _make(self, metric: Metric) -> None:
        name, said, labels, registry = metric.name, metric.help, metric.labels, self._registry
        match metric.kind:
            case Kind.COUNTER:
                self._counters[name] = BoundedCounter(name, said, labels, registry=registry)
            case Kind.GAUGE:
                self._gauges[name] = BoundedGauge(name, said, labels, registry=registry)
            case Kind.HISTOGRAM:
                buckets = metric.buckets
                self._histograms[name] = BoundedHistogram(
                    name, said, labels, registry=registry, buckets=buckets
                )


def of_process(*tables: Iterable[Metric], health: Health) -> Meters:
    """The meters of a process, filled with what every process has."""
    meters = Meters(metrictable.EVERY_PROCESS, *tables)
    meters.with_process()

    def fill() -> None:
        checks = health.checks()
        meters.set(metrictable.READY, {(name,): not why for name, why in checks.items()})

    meters.at_scrape(fill)
    return meters


def tell_leadership(meters: Meters, leadership: Leadership) -> None:
    """Fill the metrics about the Lease."""

    def fill() -> None:
        meters.gauge(metrictable.LEADER).set(leadership.is_leading)
        meters.gauge(metrictable.LEASE_PROBLEM).set(bool(leadership.problem))

    meters.at_scrape(fill)


def tell_calls(meters: Meters, client: KubeClient) -> None:
    """Fill the metrics about calls to the API server."""
    seconds = meters.histogram(metrictable.KUBE_SECONDS)
    requests = meters.counter(metrictable.KUBE_REQUESTS)

    def called(verb: str, resource: str, code: str, took: float) -> None:
        seconds.labels(verb, resource).observe(took)
        requests.labels(verb, resource, code).inc()

    client.on_called = called


def tell_watches(meters: Meters, followed: Callable[[], Mapping[str, Informer]]) -> None:
    """Fill the metrics about watches; `followed` are those of the present term."""

    def fill() -> None:
        now, informers = time.monotonic(), followed()
        # What was never heard of is on /readyz; a standby, which follows nothing, is no alarm.
        heard = {(name,): one.stale_seconds(now) for name, one in informers.items() if one.relists}
        meters.set(metrictable.WATCH_AGE, heard)
        lists = {(name,): one.relists for name, one in informers.items()}
        meters.count_up(metrictable.WATCH_LISTS, lists)
        meters.set(metrictable.WATCH_OBJECTS, {(n,): len(one) for n, one in informers.items()})

    meters.at_scrape(fill)
