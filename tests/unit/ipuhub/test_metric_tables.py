"""The tables of metrics: names as Prometheus wants them, a question and a sentence each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from dashboard.management.commands.make_reference import METRICS
from ipuhub.process.metrics import MOST_SERIES, Kind, Meters, Page

if TYPE_CHECKING:
    from ipuhub.process.metrics import BoundedCounter, BoundedGauge, Metric

ALL = [metric for _, table in METRICS for metric in table]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_metric_is_named_and_explained(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.name.startswith(("ipuhub_", "process_"))
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.question.endswith("?")
    assert metric.help.endswith(".")
    assert "job" not in metric.labels, "Prometheus' own label"
    if metric.kind is Kind.HISTOGRAM:
        assert list(metric.buckets) == sorted(metric.buckets)


def test_no_two_metrics_share_a_name_or_a_question() -> None:
    assert len({metric.name for metric in ALL}) == len(ALL)
    assert len({metric.question for metric in ALL}) == len(ALL)


@pytest.fixture
def meters() -> Meters:
    return Meters()


@pytest.fixture
def counter(meters: Meters) -> BoundedCounter:
    return meters.counter("ipuhub_tests_total", "A test.", "Is it a test?", "kind")


@pytest.fixture
def gauge(meters: Meters) -> BoundedGauge:
    return meters.gauge("ipuhub_test", "A test.", "Is it?", "kind")


def test_a_gauge_that_is_set_again_forgets_what_it_said(
    meters: Meters, gauge: BoundedGauge
) -> None:
    gauge.set_all({("a",): 1, ("b",): 2})
    gauge.set_all({("b",): 3})
    lines = meters.render().decode().splitlines()
    assert [line for line in lines if line[0] != "#"] == ['ipuhub_test{kind="b"} 3.0']


def test_a_counter_follows_totals_and_never_falls(meters: Meters, counter: BoundedCounter) -> None:
    for total in (2, 5, 5, 1, 2):  # 1: what is counted has begun anew
        counter.count_up({("a",): total})
    assert b'ipuhub_tests_total{kind="a"} 6.0' in meters.render()


def test_a_faulty_fill_costs_its_own_metrics_only(meters: Meters, gauge: BoundedGauge) -> None:

    def fail() -> None:
        raise ValueError("no figures")

    page = Page(meters)
    page.at_scrape(fail)
    page.at_scrape(lambda: gauge.set_all({("a",): 1}))
    assert b'ipuhub_test{kind="a"} 1.0' in page.render()


def test_a_metric_has_a_bounded_number_of_series_and_counts_the_rest_together(
    meters: Meters, counter: BoundedCounter
) -> None:
    for number in range(MOST_SERIES + 7):
        counter.labels(number).inc()
    counter.labels(3).inc()  # a known label still counts for itself
    lines = [line for line in meters.render().decode().splitlines() if line[0] != "#"]
    assert len(lines) == MOST_SERIES + 1
    assert lines[-1] == 'ipuhub_tests_total{kind="other"} 7.0'
    assert 'ipuhub_tests_total{kind="3"} 2.0' in lines


def test_a_gauge_adds_up_what_is_beyond_the_bound_and_has_room_again_later(
    meters: Meters, gauge: BoundedGauge
) -> None:
    gauge.set_all({(str(number),): 2 for number in range(MOST_SERIES + 7)})
    assert 'ipuhub_test{kind="other"} 14.0' in meters.render().decode()
    gauge.set_all({("new",): 1})
    lines = [line for line in meters.render().decode().splitlines() if line[0] != "#"]
    assert lines == ['ipuhub_test{kind="new"} 1.0']


def test_no_text_of_a_label_breaks_the_page_or_fills_it(
    meters: Meters, counter: BoundedCounter, gauge: BoundedGauge
) -> None:
    for text in ("\ud800", 'a"b\\c\nd\0', "x" * 100_000):
        counter.labels(text).inc()
        gauge.set_all({(text,): 1})
        assert len(meters.render()) < 2000
    assert 'kind="\\\\ud800"} 1.0' in meters.render().decode()
