"""io: metrics that no label's text can break or fill memory with, whoever chose that text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

if TYPE_CHECKING:
    from typing import Self

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
