"""Delays grow, stay in bounds and are spread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.backoff import Backoff, exponential


@pytest.mark.parametrize(
    ("attempt", "want_seconds"),
    [(-1, 0.005), (0, 0.005), (1, 0.01), (10, 5.12), (17, 655.36), (18, 960.0), (10_000, 960.0)],
)
def test_waits_double_up_to_the_maximum(attempt: int, want_seconds: float) -> None:
    assert exponential(attempt, base=0.005, maximum=960.0) == pytest.approx(want_seconds)


@given(st.integers(0, 10_000), st.floats(0.0, 1.0, exclude_max=True))
def test_a_jittered_wait_is_never_shorter_than_the_first_nor_longer_than_the_last(
    attempt: int, spread: float
) -> None:
    assert 0.8 <= Backoff(0.8, 30.0).delay_seconds(attempt, spread) <= 30.0


@pytest.mark.parametrize("attempt", [0, 3, 100])
def test_two_clients_that_fail_together_do_not_come_back_together(attempt: int) -> None:
    backoff = Backoff()
    early, late = backoff.delay_seconds(attempt, 0.0), backoff.delay_seconds(attempt, 0.999)
    assert late > early * 1.9
