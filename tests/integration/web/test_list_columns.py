"""The choice of columns of a list: in the URL, on the page and in its files."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import jobhistory
from tests.builders.clients import browser

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(django_user_model: Any) -> Client:
    jobhistory.job("bert", group="nlp")
    jobhistory.job("vit", group="vision")
    return browser(django_user_model.objects.create_user("root", is_staff=True))


def body(answer: Any) -> str:
    text: str = answer.getvalue().decode()
    return text


def heads(text: str) -> list[str]:
    found = re.findall(r'<th scope="col".*?</th>', text, re.DOTALL)
    return [re.sub(r"<[^>]*>", "", head) for head in found]


def test_the_page_shows_the_chosen_columns_in_the_order_of_the_list(staff: Client) -> None:
    assert len(heads(body(staff.get("/jobs/")))) > 8
    assert heads(body(staff.get("/jobs/?columns=ipus,name"))) == ["Job", "IPUs"]
    # As a form without JavaScript sends it.
    assert heads(body(staff.get("/jobs/?columns=ipus&columns=name"))) == ["Job", "IPUs"]


def test_files_have_exactly_the_filtered_rows_and_the_chosen_columns(staff: Client) -> None:
    url = "/jobs/?group=nlp&columns=name,uid"
    rows = list(csv.reader(io.StringIO(body(staff.get(f"{url}&format=csv")))))
    assert [rows[0], [row[0] for row in rows[1:]]] == [["name", "uid"], ["bert"]]
    (record,) = json.loads(body(staff.get(f"{url}&format=json")))
    assert list(record) == ["name", "uid"]
    assert "columns=name%2Cuid&amp;format=csv" in body(staff.get(url))


def test_forms_and_links_keep_the_choice_and_the_choice_keeps_them(staff: Client) -> None:
    text = body(staff.get("/jobs/?group=nlp&sort=-ipus&columns=name,ipus"))
    filters, chooser = re.findall(r"<form.*?</form>", text, re.DOTALL)[-2:]
    assert 'name="columns" value="name,ipus"' in filters
    assert 'name="group" value="nlp"' in chooser
    assert 'name="sort" value="-ipus"' in chooser
    assert re.findall(r'value="(\w+)" checked', chooser) == ["name", "ipus"]
    assert "columns=name%2Cipus" in text


def test_all_columns_are_chosen_by_name_and_files_lose_none(staff: Client) -> None:
    text = body(staff.get("/jobs/?group=nlp&columns=name"))
    every, usual = re.findall(r'<a class="btn btn-sm btn-ghost-secondary" href="([^"]*)"', text)
    assert unescape(usual) == "/jobs/?group=nlp"
    every = unescape(every)
    assert heads(body(staff.get(every))) == heads(body(staff.get(unescape(usual))))
    assert body(staff.get(f"{every}&format=csv")) == body(staff.get("/jobs/?group=nlp&format=csv"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("pet", "columns: &#x27;pet&#x27; is no column. Valid columns: state, name,"),
        ("<b>", "is no column"),
        ("uid", "choose at least one column that the page shows"),
    ],
)
def test_a_wrong_choice_is_refused_in_words(staff: Client, given: str, sentence: str) -> None:
    answer = staff.get("/jobs/", {"columns": given})
    assert answer.status_code == 400
    assert sentence in body(answer)
    assert "<b>" not in body(answer)


def test_the_api_knows_no_such_parameter(staff: Client) -> None:
    answer = staff.get("/api/v1/jobs?columns=name")
    assert answer.status_code == 400
