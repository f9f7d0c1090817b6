"""Values of metrics, which exist once per process, so other tests count in them, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.metrics import MetricWrapperBase

if TYPE_CHECKING:
    from ipuhub.process.metrics import Meters


def metric_value(meters: Meters, name: str, **labels: str) -> float:
    """The value of one series; 0 if it is not there."""
    return meters.registry.get_sample_value(name, labels) or 0.0


def reset_metrics(meters: Meters) -> None:
    """Let all metrics begin at nothing."""
    for metric in meters.registry._collector_to_names:
        if isinstance(metric, MetricWrapperBase):
            metric.clear()
            if not metric._labelnames:
                metric._metric_init()
            getattr(metric, "_counted", {}).clear()
