"""The text of a filter value, for empty values and for values equal to that text."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ipuhub.web.filters import filter_text, filter_value

MADE_OF = st.text(alphabet="\\(none) a", max_size=12)


@given(MADE_OF)
@example("(none)")
@example("\\(none)")
def test_every_value_has_a_text_of_its_own_that_means_it(value: str) -> None:
    assert filter_value(filter_text(value)) == value


def test_only_what_has_no_value_is_none() -> None:
    assert filter_text("") == "(none)"
    assert filter_text("(none)") == "\\(none)"
    assert filter_text("none") == "none"
    assert filter_text("a\\(none)") == "a\\(none)"
