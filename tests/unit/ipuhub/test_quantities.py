"""Kubernetes quantities as exact integers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.quantities import LARGEST, InvalidQuantity, thousandths, units


@pytest.mark.parametrize(
    ("text", "want_units", "want_thousandths"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        (2, 2, 2000),
        (0.5, 1, 500),
        ("500m", 1, 500),
        ("1.5", 2, 1500),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("+3", 3, 3000),
        ("0.1m", 1, 1),
        ("100n", 1, 1),
        ("1k", 1000, 1_000_000),
        ("1Ki", 1024, 1_024_000),
        ("1.5Gi", 3 * 2**29, 3 * 2**29 * 1000),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("1E", 10**18, 10**21),
        ("25e-1", 3, 2500),
    ],
)
def test_amounts(text: str, want_units: int, want_thousandths: int) -> None:
    assert units(text) == want_units
    if want_thousandths <= LARGEST:
        assert thousandths(text) == want_thousandths


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "not a quantity"),
        ("many", "not a quantity"),
        ("1 Gi", "not a quantity"),
        ("1gi", "not a quantity"),
        ("1.2.3", "not a quantity"),
        ("NaN", "not a quantity"),
        ("1e", "not a quantity"),
        ("0x10", "not a quantity"),
        ("1e999999999", "not a quantity"),
        ("9" * 65, "not a quantity"),
        ("-1", "negative"),
        ("1e99", "too large"),
        ("8Ei", "too large"),
        (True, "not a quantity"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(text: str, want: str) -> None:
    with pytest.raises(InvalidQuantity, match=want):
        units(text)


SUFFIXES = {"": 1, "m": Fraction(1, 1000), "k": 1000, "M": 10**6, "Ki": 1024, "Gi": 2**30}


@given(
    st.integers(0, 10**6), st.integers(0, 999_999), st.sampled_from(sorted(SUFFIXES)), st.booleans()
)
def test_rounding_is_up_and_exact(whole: int, part: int, suffix: str, as_cpu: bool) -> None:
    exact = Fraction(whole * 10**6 + part, 10**6) * SUFFIXES[suffix] * (1000 if as_cpu else 1)
    amount = (thousandths if as_cpu else units)(f"{whole}.{part:06d}{suffix}")
    assert exact <= amount < exact + 1
