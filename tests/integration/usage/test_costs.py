from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitions.models import PartitionLifetime
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.exactcost import exact_cost, rounded
from tests.integration.usage.reading import make, rows_of, text_of, total_of
from usage.models import MonthReport, PodLifetime, Rate, ReportChunk, ReportRow
from usage.rates.pages import end_rate
from usage.reports.csv import csv_form
from usage.reports.downloads import Wanted, open_file
from usage.time.windows import Month

pytestmark = pytest.mark.django_db(transaction=True)
_LATER = "2026-11-03T00:00"


def _costs(kind: str = "summary") -> list[str]:
    return [row["cost"] for row in rows_of("2026-10", kind)]


@pytest.mark.parametrize(
    ("resource", "name", "want"),
    [
        ("cpu", "", "6.00"),
        ("memory", "", "12.00"),
        ("gpu", "", "9.00"),
        ("accelerator", "amd.com/gpu", "6.00"),
        ("ipu", "", "24.00"),
        ("instance", "big", "3.00"),
    ],
)
def test_each_resource_costs_its_price_by_the_hour(resource: str, name: str, want: str):
    store_rate(resource, "1.5", name=name)
    store_pod(
        "2026-10-01T00:00",
        "2026-10-01T02:00",
        cpu=2,
        memory_gib=4,
        gpus=3,
        accelerators={"amd.com/gpu": 2, "nvidia.com/gpu": 1},
        ipus=8,
        instance_type="big",
    )
    make("2026-10", _LATER)
    assert _costs() == [want]
    assert _costs("details") == [f"{want}000"]


def test_a_partition_costs_its_price_and_never_a_pods():
    store_rate("partition-ipu", "2")
    store_rate("cpu", "5")
    store_rate("instance", "100", name="big")
    store_partition("2026-10-01T00:00", "2026-10-01T03:00", size=4)
    make("2026-10", _LATER)
    assert _costs() == ["24.00"]


def test_a_price_by_name_stands_in_for_the_general_one():
    store_rate("gpu", "1")
    store_rate("accelerator", "10", name="nvidia.com/gpu")
    accelerators = {"nvidia.com/gpu": 1, "amd.com/gpu": 2}
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", gpus=3, accelerators=accelerators)
    store_pod("2026-10-01T01:00", "2026-10-01T02:00", gpus=1, accelerators={"amd.com/gpu": 1})
    make("2026-10", _LATER)
    assert (_costs(), _costs("details")) == (["13.00"], ["12.00000", "1.00000"])


def test_the_price_of_an_instance_type_is_all_that_a_pod_of_it_costs():
    store_rate("cpu", "1")
    store_rate("instance", "0.25", name="small")
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", instance_type="small", cpu=8)
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", instance_type="other", cpu=8)
    make("2026-10", _LATER)
    assert _costs() == ["8.00", "0.25"]


def test_time_is_split_where_a_price_changes_in_the_reports_zone():
    first = store_rate("cpu", "1")
    end_rate(first, date(2026, 10, 11), "ada", at("2026-10-05T00:00"))
    store_rate("cpu", "3", "2026-10-11", "2026-10-12")  # from the 12th on it is free
    store_pod("2026-10-10T21:00", "2026-10-12T02:00", cpu=1)
    make("2026-10", _LATER, ZoneInfo("Europe/Berlin"))
    assert _costs() == [f"{1 + 3 * 24}.00"]
    assert _costs("details") == ["73.00000"]


@pytest.mark.parametrize(
    ("seconds", "want"), [(18, "0.00"), (54, "0.02"), (90, "0.02"), (19, "0.01"), (17, "0.00")]
)
def test_money_is_rounded_half_to_even(seconds: int, want: str):
    store_rate("cpu", "1")  # 18 s cost exactly half a cent
    end = at("2026-10-01T00:00") + timedelta(seconds=seconds)
    store_pod("2026-10-01T00:00", f"{end:%FT%T}", cpu=1)
    make("2026-10", _LATER)
    assert _costs() == [want]


def test_the_rows_add_up_to_the_sum_that_is_shown():
    store_rate("cpu", "0.333333")
    for group in "abcdefg":
        store_pod("2026-10-01T00:00", "2026-10-01T00:17:03", group=group)
    report = make("2026-10", _LATER)
    assert report.cost == sum(Decimal(cost) for cost in _costs())


def test_a_closed_month_keeps_the_prices_it_was_closed_with():
    store_rate("cpu", "1")
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", cpu=2)
    make("2026-10", "2026-12-01T00:00")
    before = [text_of("2026-10", kind) for kind in ("summary", "details")]
    Rate.objects.all().delete()
    store_rate("cpu", "7")
    assert [text_of("2026-10", kind) for kind in ("summary", "details")] == before
    assert MonthReport.objects.get().tariff["rates"][0]["price"] == "1.000000"


def test_an_open_month_keeps_its_prices_until_it_is_made_anew():
    old = store_rate("cpu", "1")
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", cpu=2)
    make("2026-10", _LATER)
    end_rate(old, date(2026, 1, 1), "ada", at("2026-10-05T00:00"))
    store_rate("cpu", "7")
    assert _costs("details") == ["2.00000"]
    make("2026-10", _LATER)
    assert (_costs(), _costs("details")) == (["14.00"], ["14.00000"])


def test_primehubs_files_do_not_change_with_prices():
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", cpu=2)
    make("2026-10", _LATER)
    before = [text_of("2026-10", kind, "primehub") for kind in ("summary", "details")]
    store_rate("cpu", "1")
    make("2026-10", _LATER)
    assert [text_of("2026-10", kind, "primehub") for kind in ("summary", "details")] == before


def test_two_prices_of_one_thing_never_hold_on_the_same_day():
    store_rate("cpu", "1", "2026-01-01", "2026-02-01")
    store_rate("cpu", "2", "2026-02-01")
    store_rate("accelerator", "2", "2026-02-01", name="a")
    store_rate("accelerator", "2", "2026-02-01", name="b")
    with pytest.raises(ValidationError, match="Another rate of cpu applies on one of these days"):
        store_rate("cpu", "3", "2026-01-31", "2026-02-01")
    with pytest.raises(IntegrityError, match="rate_once_a_day"), transaction.atomic():
        Rate.objects.create(
            resource="cpu",
            price=3,
            valid_from=date(2026, 5, 1),
            created_by="Another process",
            created_at=at("2026-01-01T00:00"),
        )


def test_a_price_that_ends_on_its_first_day_never_held_and_makes_room():
    wrong = store_rate("cpu", "1000")
    end_rate(wrong, date(2026, 1, 1), "bob", at("2026-02-01T00:00"))
    store_rate("cpu", "1")
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", cpu=1)
    make("2026-10", _LATER)
    assert _costs() == ["1.00"]
    wrong.refresh_from_db()
    assert (wrong.created_by, wrong.ended_by) == ("ada", "bob")


@pytest.mark.parametrize(
    ("resource", "name", "price", "ends", "field"),
    [
        ("cpu", "x", "1", "", "name"),
        ("accelerator", " ", "1", "", "name"),
        ("instance", "a" * 254, "1", "", "name"),
        ("water", "", "1", "", "resource"),
        ("cpu", "", "-1", "", "price"),
        ("cpu", "", "NaN", "", "price"),
        ("cpu", "", "1.0000001", "", "price"),
        ("cpu", "", "1", "2026-01-01", "valid_until"),
    ],
)
def test_a_rate_that_cannot_be_is_refused_by_field(resource, name, price, ends, field):
    with pytest.raises(ValidationError) as refused:
        store_rate(resource, price, "2026-01-01", ends, name)
    assert list(refused.value.message_dict) == [field]
    assert not Rate.objects.exists()


_DAYS = st.integers(min_value=-40, max_value=40)
_PODS = st.tuples(
    st.integers(-(40 * 86400), 35 * 86400),
    st.integers(0, 10 * 86400),
    st.integers(0, 9000),
    st.integers(0, 2**40),
    st.integers(0, 4),
    st.sampled_from(["small", "big", "odd"]),
)
_PRICES = st.tuples(
    st.sampled_from(
        [("cpu", ""), ("memory", ""), ("gpu", ""), ("accelerator", "g"), ("instance", "big")]
    ),
    _DAYS,
    st.integers(1, 30),
    st.decimals("0.000001", "99", places=6),
)
FIRST = at("2026-10-01T00:00")


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_PODS, min_size=1, max_size=6), st.lists(_PRICES, max_size=6))
def test_costs_are_those_of_exact_fractions(pods, prices):
    for model in (PodLifetime, PartitionLifetime, Rate, ReportChunk, ReportRow, MonthReport):
        model.objects.all().delete()
    rates = []
    for (resource, name), begin, length, price in prices:
        begins = date(2026, 10, 1) + timedelta(days=begin)
        try:
            rates.append(
                store_rate(
                    resource, str(price), f"{begins}", f"{begins + timedelta(days=length)}", name
                )
            )
        except ValidationError:
            continue
    for number, (begin, length, cpu, memory, gpus, kind) in enumerate(pods):
        start = FIRST + timedelta(seconds=begin)
        PodLifetime.objects.filter(
            pk=store_pod(
                f"{start:%FT%T}",
                f"{start + timedelta(seconds=length):%FT%T}",
                group=f"g{number}",
                gpus=gpus,
                accelerators={"g": gpus // 2, "h": gpus - gpus // 2},
                instance_type=kind,
            ).pk
        ).update(cpu_millicores=cpu, memory_bytes=memory)
    make("2026-10", "2026-12-01T00:00")
    exact = {each.group: exact_cost(each, rates, FIRST, 31) for each in PodLifetime.objects.all()}
    for row in rows_of("2026-10", "summary"):
        assert Decimal(row["cost"] or 0) == rounded(exact[row["group"]], 2)
    for row in rows_of("2026-10", "details"):
        assert Decimal(row["cost"] or 0) == rounded(exact[row["group"]], 5)


def test_a_line_is_without_a_price_where_nothing_had_one_and_free_where_that_was_nothing():
    store_rate("cpu", "0", "2026-10-11", "2026-10-21")
    store_rate("cpu", "2", "2026-10-21")
    for group, day in (("before", 10), ("free", 15), ("paid", 25)):
        store_pod(f"2026-10-{day}T00:00", f"2026-10-{day}T01:00", group=group)
    store_partition(
        "2026-10-15T00:00", "2026-10-15T01:00", group="z"
    )  # free like all that has no price then
    make("2026-10", _LATER)
    want = {"before": ("", ""), "free": ("0.00", "EUR"), "paid": ("2.00", "EUR")}
    summary = {
        row["group"]: (row["cost"], row["currency"]) for row in rows_of("2026-10", "summary")
    }
    assert summary == want | {"z": ("0.00", "EUR")}
    details = {row["group"]: row["cost"] for row in rows_of("2026-10", "details")}
    assert details == {"before": "", "free": "0.00000", "paid": "2.00000", "z": "0.00000"}
    assert MonthReport.objects.get().cost == 2


def test_a_month_closed_before_any_price_has_no_cost_and_one_that_was_free_has():
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    store_pod("2026-09-10T00:00", "2026-09-10T02:00")
    store_rate("cpu", "0", "2026-09-01", "2026-10-01")
    for month in ("2026-09", "2026-10"):
        make(month, "2026-12-01T00:00")
    assert [report.cost for report in MonthReport.objects.order_by("month")] == [0, None]
    costs = [
        (r["cost"], r["currency"]) for m in ("2026-09", "2026-10") for r in rows_of(m, "summary")
    ]
    assert costs == [("0.00", "EUR"), ("", "")]
    assert [total_of(text_of(m, "summary"))["cost"] for m in ("2026-09", "2026-10")] == ["0.00", ""]


def test_the_line_of_totals_is_the_sum_of_the_lines_as_they_are_printed():
    store_rate("cpu", "0.333333")
    for number, group in enumerate("abcdefg"):
        store_pod("2026-10-01T00:00", f"2026-10-01T00:17:0{number}", group=group, memory_gib=number)
    report = make("2026-10", _LATER)
    text = text_of("2026-10", "summary")
    total, rows = total_of(text), rows_of("2026-10", "summary")
    for name in ("cost", "cpu_core_hours", "gb_memory_hours", "usage_hours", "pods", "estimated"):
        assert Decimal(total[name]) == sum(Decimal(row[name]) for row in rows), name
    assert Decimal(total["cost"]) == report.cost
    assert (total["namespace"], total["running"], total["currency"]) == ("", "", "EUR")
    plain = b"".join(open_file(Wanted(Month(2026, 10), "summary", total=False)).body).decode()
    assert plain == "".join(text.splitlines(keepends=True)[:-1])
    assert (report.lines["summary"], len(rows)) == (7, 7)
    lines = b"".join(open_file(Wanted(Month(2026, 10), "summary", form="jsonl")).body)
    assert lines.count(b"\n") == 7
    assert "total" not in text_of("2026-10", "summary", "primehub")
    assert "total" not in text_of("2026-10", "details", "primehub")


@pytest.mark.parametrize("now", [_LATER, "2026-12-15T00:00"])  # from the rows; as it was stored
def test_the_details_end_with_the_sum_of_their_lines_as_they_are_printed(now: str):
    store_rate("cpu", "0.333333")
    for number, group in enumerate("abcdefg"):
        store_pod("2026-10-01T00:00", f"2026-10-01T00:17:0{number}", group=group, memory_gib=number)
    store_partition("2026-10-01T00:00", "2026-10-01T00:17:03", size=4)
    make("2026-10", now)
    text = text_of("2026-10", "details")
    total, rows = total_of(text), rows_of("2026-10", "details")
    assert len(rows) == 8
    added = [name for name in total if name.endswith("_hours")] + ["seconds", "cost"]
    for name in added:
        assert Decimal(total[name]) == sum(Decimal(row[name] or 0) for row in rows), name
    texts = set(total) - {*added, "report_month", "currency"}
    assert {total[name] for name in texts} == {""}  # also sizes, and the largest errors
    assert total["currency"] == "EUR"
    plain = b"".join(open_file(Wanted(Month(2026, 10), "details", total=False)).body).decode()
    assert plain == "".join(text.splitlines(keepends=True)[:-1])
    lines = b"".join(open_file(Wanted(Month(2026, 10), "details", form="jsonl")).body)
    assert lines.count(b"\n") == 8


def test_a_line_of_data_that_looks_like_the_totals_is_kept():
    store_pod(
        "2026-10-01T00:00", "2026-10-01T01:00", namespace="total", group='x\ntotal,"', user="total"
    )
    make("2026-10", _LATER)
    text = text_of("2026-10", "details")
    bare = b"".join(csv_form(excel=False, total=False)([text.encode()])).decode()
    assert bare == text[: text.index("\ntotal,,") + 1]
    assert b"".join(csv_form(excel=False, total=False)([bare.encode()])).decode() == bare
    wanted = Wanted(Month(2026, 10), "details", total=False)
    assert b"".join(open_file(wanted).body).decode() == bare
    assert [row["group"] for row in rows_of("2026-10", "summary")] == ['x\ntotal,"']
