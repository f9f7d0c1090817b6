from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.csvsafe import GUARDED, csv_line, guard, unguard

_AWKWARD = st.text(st.sampled_from("=+-@\t\r\n',\"; abé\u00a0") | st.characters(codec="utf-8"))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "'x"])
def test_what_could_start_a_formula_gets_one_apostrophe(text: str):
    assert guard(text) == "'" + text


@pytest.mark.parametrize("text", ["", "a=1", "1", "a,b", "\nx"])
def test_other_texts_stay_as_they_are(text: str):
    assert guard(text) == text


def test_quoting_is_minimal_and_numbers_are_not_guarded():
    assert csv_line(["plain", "a,b", 'a"b', None, -1, "-1"]) == 'plain,"a,b","a""b",,-1,\'-1\n'


@given(st.lists(_AWKWARD, min_size=2, max_size=5))
def test_names_come_back_as_they_went_in(names: list[str]):
    line = csv_line(names)
    (cells,) = csv.reader(io.StringIO(line, newline=""))
    assert [unguard(cell) for cell in cells] == names
    assert all(cell[:1] not in set(GUARDED) - {"'"} or not cell for cell in cells)
