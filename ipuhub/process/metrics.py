"""io: Prometheus metrics, declared where they are counted, and the page that shows them.

Label values are escaped and limited, so untrusted values can neither break the page nor fill the
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

    Values = Mapping[Any, float]  # by tuples of label values

log = structlog.get_logger(__name__)
FAST_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0)
CALL_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
LONG_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
MOST_SERIES: Final = 1000  # of one metric; further series are counted together
LONGEST_TEXT: Final = 200  # characters of one label
OTHER: Final = "other"


class Kind(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """The description of a metric: `help` says what the number is, `question` what an engineer on
    call asks."""

    name: str
    kind: Kind
    help: str
    question: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = CALL_SECONDS


def safe_text(value: object) -> str:
    """`value` as a safe label: a lone surrogate would break every later answer, and a long text
    would stay in memory."""
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

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._counted: dict[tuple[str, ...], float] = {}

    def count_up(self, totals: Values) -> None:
        """Bring the counter to totals that something else counts."""
        for labels, total in totals.items():
            child = self.labels(*labels) if labels else self
            child.inc(max(total - self._counted.get(labels, 0.0), 0.0))
            self._counted[labels] = total

    def replace_all(self, totals: Values) -> None:
        """Show these totals only: series of what is gone end, so that they do not pile up."""
        self.clear()
        self._counted.clear()
        self.count_up(totals)


class BoundedGauge(_Bounded, Gauge):
    """A gauge."""

    def set_all(self, values: Values) -> None:
        """Make these the only values, by their labels; values of one series are added up."""
        self.clear()
        for labels, value in values.items():
            self.labels(*labels).inc(value)


class BoundedHistogram(_Bounded, Histogram):
    """A histogram."""


class Meters:
    """Metrics that are shown together. Iterating returns their descriptions, as declared.

    Each takes its name, its help, the question that it answers, and its labels.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the series
        self.registry = CollectorRegistry()
        self._described: list[Metric] = []

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._described)

    def describe(self, metric: Metric) -> None:
        """Add a metric that a library fills."""
        self._described.append(metric)

    def counter(self, name: str, meaning: str, question: str, *labels: str) -> BoundedCounter:
        """Declare a counter."""
        self.describe(Metric(name, Kind.COUNTER, meaning, question, labels))
        return BoundedCounter(name, meaning, labels, registry=self.registry)

    def gauge(self, name: str, meaning: str, question: str, *labels: str) -> BoundedGauge:
        """Declare a gauge."""
        self.describe(Metric(name, Kind.GAUGE, meaning, question, labels))
        return BoundedGauge(name, meaning, labels, registry=self.registry)

    def histogram(
        self,
        name: str,
        meaning: str,
        question: str,
        *labels: str,
        buckets: tuple[float, ...] = CALL_SECONDS,
    ) -> BoundedHistogram:
        """Declare a histogram."""
        self.describe(Metric(name, Kind.HISTOGRAM, meaning, question, labels, buckets))
        return BoundedHistogram(name, meaning, labels, registry=self.registry, buckets=buckets)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class Page:
    """The metrics on `/metrics` of one process."""

    def __init__(self, *meters: Meters) -> None:
        self._meters = list(meters)
        self._fills: list[Callable[[], object]] = []

    def show(self, meters: Meters) -> None:
        """Show these, too."""
        self._meters.append(meters)

    def at_scrape(self, fill: Callable[[], object]) -> None:
        """Call `fill` before each answer: without scrapes it costs nothing."""
        self._fills.append(fill)

    def render(self) -> bytes:
        """Return the page. A faulty fill costs its own metrics only."""
        for fill in self._fills:
            try:
                fill()
            except Exception:
                log.exception("metrics not filled")
        return b"".join(meters.render() for meters in self._meters)
