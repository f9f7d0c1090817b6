"""Texts in CSV stay texts: for the csv module, for pandas with its defaults, in a spreadsheet."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.text import GUARDED, Figure, plain_text, safe_cell

_AWKWARD = st.text(st.sampled_from("=+-@\t\r\n',\"; abé\u00a0") | st.characters(codec="utf-8"))
_NUMBERLIKE = st.text(st.sampled_from("0123456789eE.,-+_ xjJnaNIifFtrueTRU#<>%/:"), max_size=12)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "'x"])
def test_what_could_start_a_formula_gets_one_apostrophe(text: str):
    assert safe_cell(text) == "'" + text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "00123",
            "007",
            "1",
            "1e5",
            "12E+3",
            "7904e1",
            "1.50",
            ".5",
            "1,000",
            " -0",
            " +1.5",
            "$-5",
            "1 000",
            "1\u00a0000",
        ),
        *("50%", "$5", "5 €", "(5)", "1_000"),
        *("10-1", "1/2", "2026-10-01", "10.11.12", "12:30", "5 pm", "9:30am"),
        *("mar1", "MARCH1", "sept-2", "dec-2026", "1-Mar", "3 may 2026", "2jan"),
        *("true", "FALSE", "NA", "n/a", "nan", "NULL", "None", "inf", "<NA>", "#N/A", "#DIV/0!"),
    ],
)
def test_what_would_become_a_number_a_date_or_nothing_gets_one_apostrophe(text: str):
    assert safe_cell(text) == "'" + text


@pytest.mark.parametrize(
    "text",
    [
        *("", "a=1", "a,b", "\nx", "group-1", "user007", "v1.2", "e5", "5e", "1e5x", "0x1F"),
        *(
            "jan",
            "may",
            "march",
            "april",
            "june-team",
            "nano",
            "nadia",
            "truest",
            "infra",
            "none-1",
        ),
        *("12345678-1234-1234-1234-123456789012", "7904878c-a830-aa4b-16c1-b61800e8775b", "ip-10"),
        "2026-10-01T00:00:00Z",
    ],
)
def test_other_texts_stay_as_they_are(text: str):
    assert safe_cell(text) == text


def test_a_figure_of_the_program_itself_stays_a_number():
    assert safe_cell(Figure("-1.50000")) == "-1.50000"


@given(st.lists(_AWKWARD, min_size=2, max_size=5))
def test_names_come_back_as_they_went_in(names: list[str]):
    out = io.StringIO()
    csv.writer(out).writerow([safe_cell(name) for name in names])
    (cells,) = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert [plain_text(cell) for cell in cells] == names
    assert all(cell[:1] not in set(GUARDED) - {"'"} or not cell for cell in cells)


@given(_NUMBERLIKE.filter(bool))
def test_pandas_with_its_defaults_reads_the_text(name: str):
    import pandas as pd  # here, as it takes long

    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_MINIMAL).writerows([["group", "x"], [safe_cell(name), "y"]])
    (read,) = pd.read_csv(io.StringIO(out.getvalue())).group.tolist()
    assert isinstance(read, str)
    assert plain_text(read) == name
