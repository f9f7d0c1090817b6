"""A report keeps the settings and rates that it was made with, whatever they are later."""

from __future__ import annotations

import hashlib
import os
from datetime import date
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError

from tests.builders.lifetimes import at, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import make, rows_of
from usage.models import Rate
from usage.rates.pages import end_rate
from usage.reading import pricing_at
from usage.reports.downloads import Wanted, open_file
from usage.reports.making import ReportRefused, correct_month, correctable_months
from usage.reports.ranges import write_blocks
from usage.time.windows import Month

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.django_db(transaction=True)
OCTOBER = Month(2026, 10)
LATER = at("2026-12-02T00:00")
BERLIN = ZoneInfo("Europe/Berlin")


def test_a_month_with_a_correction_is_not_made_anew() -> None:
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    make("2026-10", "2026-12-01T00:00")
    store_pod("2026-10-11T00:00", "2026-10-11T02:00")
    assert correct_month(OCTOBER, LATER) is not None
    with pytest.raises(ReportRefused, match="2026-10 is closed"):
        make("2026-10", "2026-12-03T00:00")


def test_a_stored_summary_keeps_its_currency_and_decimals(settings) -> None:
    settings.REPORT_CURRENCY, settings.REPORT_COST_DECIMALS = "CHF", 3
    store_rate("cpu", "0.25")
    store_pod("2026-10-10T00:00", "2026-10-10T00:30", cpu=1)
    make("2026-10", "2026-11-03T00:00")
    settings.REPORT_CURRENCY, settings.REPORT_COST_DECIMALS = "EUR", 0
    line = rows_of("2026-10", "summary")[0]
    assert (line["cost"], line["currency"]) == ("0.125", "CHF")


def test_the_digest_of_a_correction_is_that_of_its_file_in_its_own_currency(settings) -> None:
    settings.REPORT_CURRENCY, settings.REPORT_COST_DECIMALS = "CHF", 3
    store_rate("cpu", "0.25")
    make("2026-10", "2026-12-01T00:00")
    settings.REPORT_CURRENCY, settings.REPORT_COST_DECIMALS = "EUR", 0
    store_pod("2026-10-10T00:00", "2026-10-10T00:30", cpu=1)
    correction = correct_month(OCTOBER, LATER)
    assert correction is not None
    file = b"".join(open_file(Wanted(OCTOBER, "correction", number=1)).body)
    assert b",0.125,CHF" in file
    assert hashlib.sha256(file).hexdigest() in correction.digests.values()


def test_a_correction_is_of_the_days_of_the_zone_that_the_month_was_closed_in() -> None:
    store_pod("2026-09-30T22:30", "2026-09-30T23:30")  # the first of October in Berlin
    store_pod("2026-10-31T23:30", "2026-11-01T00:30")  # the first of November there
    make("2026-10", "2026-12-01T00:00", BERLIN)
    assert correct_month(OCTOBER, LATER) is None


def test_the_newest_closed_months_are_corrected() -> None:
    for month in ("2026-08", "2026-09", "2026-10"):
        store_pod(f"{month}-10T00:00", f"{month}-10T02:00")
        make(month, "2026-12-01T00:00")
    assert correctable_months(2) == [Month(2026, 9), OCTOBER]


def test_a_price_of_the_next_month_is_none_of_this_one() -> None:
    store_rate("cpu", "1", "2026-11-01")
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    assert make("2026-10", "2026-11-03T00:00").tariff["rates"] == []
    assert pricing_at(OCTOBER.first(BERLIN), OCTOBER.end(BERLIN), BERLIN).currency == ""


def test_a_price_that_ended_as_the_month_began_is_none_of_it() -> None:
    store_rate("cpu", "1", "2026-01-01", "2026-10-01")
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    assert make("2026-10", "2026-11-03T00:00").tariff["rates"] == []


def test_a_price_of_the_last_day_is_one_of_the_month() -> None:
    store_rate("cpu", "1", "2026-10-31", name="  ")
    for end in (OCTOBER.end(BERLIN), at("2026-10-31T11:00")):
        last = pricing_at(OCTOBER.first(BERLIN), end, BERLIN).segments[-1]
        assert (last.begin, last.of("cpu")) == (at("2026-10-30T23:00"), 1)


def test_only_what_is_closed_keeps_its_prices() -> None:
    old = store_rate("cpu", "1")
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    make("2026-10", "2026-11-03T00:00")  # provisional
    end_rate(old, date(2026, 1, 1), "ada", LATER)
    store_rate("cpu", "9")
    (only,) = pricing_at(at("2026-10-01T00:00"), at("2026-11-01T00:00"), ZoneInfo("UTC")).segments
    assert only.of("cpu") == 9


def test_a_closed_month_changes_its_prices_with_the_days_of_its_own_zone() -> None:
    store_rate("cpu", "1", "2026-10-10")
    make("2026-10", "2026-12-01T00:00", BERLIN)
    Rate.objects.all().delete()
    pricing = pricing_at(at("2026-10-05T00:00"), at("2026-10-20T00:00"), ZoneInfo("UTC"))
    assert [each.begin for each in pricing.segments] == [
        at("2026-10-05T00:00"),
        at("2026-10-09T22:00"),
    ]


def test_a_price_that_was_withdrawn_is_in_no_report() -> None:
    wrong = store_rate("cpu", "1", "2026-10-05")
    end_rate(wrong, date(2026, 10, 5), "ada", LATER)
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    assert make("2026-10", "2026-11-03T00:00").tariff["rates"] == []


def test_a_rate_that_has_ended_is_not_prolonged_nor_ended_before_it_begins() -> None:
    one = store_rate("cpu", "1", "2026-10-05", "2026-10-20")
    for day, sentence in ((21, "set a new rate after it"), (4, "cannot end before that day")):
        with pytest.raises(ValidationError, match=sentence):
            end_rate(one, date(2026, 10, day), "ada", LATER)
    end_rate(one, date(2026, 10, 20), "bob", LATER)  # as it is: asked for twice, done once
    one.refresh_from_db()
    assert (one.valid_until, one.ended_by, one.ended_at) == (date(2026, 10, 20), "bob", LATER)


def test_a_name_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValidationError, match="no zero byte"):
        store_rate("instance", "1", name="a\0b")


def test_a_written_file_has_the_rights_of_any_other(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_blocks([b"a\n"], tmp_path / "file.csv")
    finally:
        os.umask(umask)
    assert (tmp_path / "file.csv").stat().st_mode & 0o777 == 0o640
