"""Odd names from a pod's annotation to files, API, pages and the log: as they were, and inert."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from ipuhub.text import GUARDED, plain_text
from tests.builders.clients import browser
from tests.builders.lifetimes import at
from tests.builders.oddnames import ODD_NAMES
from tests.fakes.background import Background
from tests.fakes.emptytables import empty_tables
from tests.fakes.meter import Meter, spans, usage
from tests.integration.usage.reading import make

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django import DjangoDbBlocker

# Without the second mark pytest-django makes no database where this module runs alone.
pytestmark = [pytest.mark.embedded_only, pytest.mark.django_db]
REPORT = "/api/v1/usage/reports/2026-10"
TEXTS = {"group", "user", "component", "component_name", "instance_type"}
_NOT_THERE: dict[str, Any] = {"keep_default_na": False, "dtype": str}


@pytest.fixture(scope="module")
def _recorded(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[User]:
    """A pod for each odd name, which is its group, user and all else, read by a real prober; and
    who looks at them. Committed once for all tests here, which change nothing."""
    with django_db_blocker.unblock():
        background = Background()
        meter = Meter(background, tmp_path_factory.mktemp("odd") / "cluster")
        try:
            ran = spans("2026-10-01T00:00:00Z", "2026-10-01T01:00:00Z")
            for number, name in enumerate(ODD_NAMES.values()):
                stamp = usage(**dict.fromkeys(TEXTS, name))
                meter.pod(f"odd-{number:02}", ran, stamp=stamp, requests={"cpu": "1"})
            with meter.probing():
                pass
            make("2026-10", "2026-11-03T00:00")
            yield get_user_model().objects.create_user("ann", password="x", is_staff=True)
        finally:
            meter.close()
            background.close()
            empty_tables(connection)


@pytest.fixture
def client(_recorded: User, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(timezone, "now", lambda: at("2026-11-21T12:00"))
    return browser(_recorded)


def body(client: Client, path: str) -> bytes:
    answer: Any = client.get(path)
    assert answer.status_code == 200, path
    text: bytes = answer.getvalue()  # read to its end, it is closed
    return text


class Shown(HTMLParser):
    """The text of a page, and the parts of it that could run."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.values: set[str] = set()
        self.running: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.values.update(value for value in given.values() if value)
        self.running += [name for name in given if name.startswith("on")]
        if tag == "script" and not (given.get("src") or "").startswith("/static/"):
            self.running.append(tag)
        for name in ("href", "src", "action"):
            if (given.get(name) or "").lower().startswith("javascript:"):
                self.running.append(given[name] or "")


def test_every_file_gives_each_name_back_to_csv_and_to_pandas(client: Client) -> None:
    import pandas as pd  # here, as it takes long

    names = set(ODD_NAMES.values())
    for path in (
        f"{REPORT}/details.csv?total=no",
        f"{REPORT}/details.csv?profile=primehub",
        f"{REPORT}/summary.csv?total=no",
        f"{REPORT}/summary.csv?profile=primehub",
        "/api/v1/usage/summary?month=2026-10&by=group,user,component&format=csv&total=no",
        "/usage/pods/?format=csv",
    ):
        raw = body(client, path)
        text = raw.decode()
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
        frame = pd.read_csv(io.BytesIO(raw), **_NOT_THERE, lineterminator=_line_end(text))
        assert len(lines) == len(frame) == len(names), path
        for column in TEXTS & set(lines[0]):
            cells = [line[column] for line in lines]
            assert {plain_text(cell) for cell in cells} == names, (path, column)
            assert not [cell for cell in cells if cell[0] in GUARDED.replace("'", "")]
            assert frame[column].tolist() == cells, (path, column)


@pytest.mark.parametrize(
    "path",
    [
        f"{REPORT}/details.csv?total=no",
        f"{REPORT}/summary.csv?total=no",
        "/api/v1/usage/summary?month=2026-10&by=group,user,component&format=csv&total=no",
        "/usage/pods/?format=csv",
    ],
)
def test_pandas_with_its_defaults_keeps_texts_and_reads_numbers(client: Client, path: str) -> None:
    import pandas as pd

    text = body(client, path).decode()
    frame = pd.read_csv(io.StringIO(text, newline=""), lineterminator=_line_end(text))
    for column in TEXTS & set(frame.columns):
        assert {plain_text(cell) for cell in frame[column]} == set(ODD_NAMES.values()), column
    numbers = {name for name in frame.columns if name.endswith(("_hours", "_percent", "cpus"))}
    assert numbers
    for column in numbers:
        assert frame[column].dtype.kind in "fi", (column, frame[column].tolist())


def test_primehubs_form_guards_what_would_run_and_nothing_else(client: Client) -> None:
    text = body(client, f"{REPORT}/details.csv?profile=primehub").decode()
    users = {line["user"] for line in csv.DictReader(io.StringIO(text, newline=""))}
    kept = {ODD_NAMES[what] for what in ("number", "exponent", "date", "day", "truth", "nothing")}
    assert kept <= users
    assert {f"'{ODD_NAMES[what]}" for what in ("equals", "plus", "minus", "at")} <= users


def _line_end(text: str) -> str | None:
    """Without it pandas takes any CR for the end of a line, also in quotes of an old parser."""
    return None if "\r\n" in text.split("\n", 1)[0] + "\n" else "\n"


def test_json_gives_each_name_back(client: Client) -> None:
    names = set(ODD_NAMES.values())
    lifetimes = json.loads(body(client, "/api/v1/usage/lifetimes?page_size=200"))["results"]
    for column in TEXTS:
        assert {one[column] for one in lifetimes} == names
    sums = json.loads(body(client, "/api/v1/usage/summary?month=2026-10&by=group"))
    assert {row["key"]["group"] for row in sums["results"]} <= names
    assert len(json.loads(body(client, "/usage/pods/?format=json"))) == len(names)


def test_pages_show_each_name_and_run_none(client: Client) -> None:
    for path in ("/usage/pods/", "/usage/?month=2026-10&by=group", "/usage/?month=2026-10&by=user"):
        parsed = Shown(body(client, path).decode())
        assert parsed.running == [], path
        text = "\n".join(parsed.texts)
        for what, name in ODD_NAMES.items():
            assert name in text or name.replace("\r", "\n") in text, (path, what)


@pytest.mark.parametrize("what", ["script", "attribute", "address", "percent", "right to left"])
def test_a_name_in_a_filter_comes_back_in_its_field_and_nowhere_as_code(
    client: Client, what: str
) -> None:
    name = ODD_NAMES[what]
    answer = client.get("/usage/pods/", {"group": name})
    parsed = Shown(answer.content.decode())
    assert parsed.running == []
    assert name in parsed.values
    assert "1 pod" in " ".join("".join(parsed.texts).split())
    assert "\n" not in answer.headers.get("Content-Disposition", "")


def test_file_names_come_from_us_and_never_from_a_name(client: Client) -> None:
    for path in (
        "/usage/pods/?format=csv&group=%22%0d%0aX-Evil:%201",
        "/api/v1/usage/summary?month=2026-10&by=group&format=csv&group=..%2F..%2Fetc",
        f"{REPORT}/details.csv",
    ):
        answer: Any = client.get(path)
        assert answer.status_code == 200
        name = answer["Content-Disposition"]
        answer.getvalue()  # read to its end, it is closed
        assert name.count('"') == 2
        assert set(name.split('"')[1]) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
        assert "X-Evil" not in answer.headers
