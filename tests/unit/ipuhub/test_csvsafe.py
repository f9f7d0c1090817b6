from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.csvsafe import GUARDED, plain_text, safe_cell

_AWKWARD = st.text(st.sampled_from("=+-@\t\r\n',\"; abé\u00a0") | st.characters(codec="utf-8"))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "'x"])
def test_what_could_start_a_formula_gets_one_apostrophe(text: str):
    assert safe_cell(text) == "'" + text


@pytest.mark.parametrize("text", ["", "a=1", "1", "a,b", "\nx"])
def test_other_texts_stay_as_they_are(text: str):
    assert safe_cell(text) == text


@given(st.lists(_AWKWARD, min_size=2, max_size=5))
def test_names_come_back_as_they_went_in(names: list[str]):
    out = io.StringIO()
    csv.writer(out).writerow([safe_cell(name) for name in names])
    (cells,) = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert [plain_text(cell) for cell in cells] == names
    assert all(cell[:1] not in set(GUARDED) - {"'"} or not cell for cell in cells)
