"""Hours are rounded once, from exact whole numbers."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from hypothesis import given
from hypothesis import strategies as st

from usage.sums.measures import GIB, OUTPUTS, Measures, hours, total


@given(amount=st.integers(0, 10**40), unit=st.sampled_from([1, 1000, 10**6, GIB]))
def test_hours_are_rounded_half_up_as_the_reports_are(amount: int, unit: int) -> None:
    from decimal import localcontext

    with localcontext() as context:
        context.prec = 80
        want = (Decimal(amount) / (unit * 3600)).quantize(Decimal("0.00001"), ROUND_HALF_UP)
    assert str(hours(amount, unit)) == f"{want:f}"


def test_four_ipus_for_a_quarter_of_an_hour_are_one_hour() -> None:
    held = Measures(micro_ipu_seconds=4 * 10**6 * 900)
    assert str(OUTPUTS["ipu_hours"].of(held)) == "1.00000"


def test_the_share_of_estimates_is_that_of_time() -> None:
    held = Measures(seconds=3000, estimated_seconds=1000)
    assert str(held.estimated_percent) == "33.3"
    assert str(Measures().estimated_percent) == "0.0"


def test_the_total_adds_each_measure_to_itself() -> None:
    rows = [Measures(*range(1, 12)), Measures(*range(11, 0, -1))]
    assert total(rows) == Measures(*[12] * 11)
    assert total([]) == Measures()


def test_a_total_has_a_cost_where_any_row_has_one() -> None:
    assert [total(Measures(cost=c) for c in costs).cost for costs in ((None, None), (None, 2))] == [
        None,
        2,
    ]
    assert Measures(cost=None).rank("cost") == 0
