"""Settings come from the environment, fail loudly, and can come from files."""

from __future__ import annotations

import json
import re
from ipaddress import ip_network
from pathlib import Path

import pytest
from celery.schedules import crontab

from dashboard.reference import settings_page
from ipuhub.database import database_settings
from ipuhub.env import Env, SettingError
from ipuhub.variables import ENV


def test_a_setting_that_is_not_there_has_its_default() -> None:
    assert Env({}).integer("A", 7, doc="x") == 7


@pytest.mark.parametrize(
    ("read", "text", "want"),
    [
        ("integer", "12", 12),
        ("number", "0.5", 0.5),
        ("switch", "Off", False),
        ("words", " a, b,,", ["a", "b"]),
        ("text", "", ""),
    ],
)
def test_each_reader_parses_its_kind(read: str, text: str, want: object) -> None:
    default = {"integer": 1, "number": 1.0, "switch": True, "words": [], "text": "x"}[read]
    assert getattr(Env({"A": text}), read)("A", default, doc="x") == want


@pytest.mark.parametrize(
    ("read", "text", "want"),
    [
        ("label_keys", "team, a.example/Cost_Centre,", ["team", "a.example/Cost_Centre"]),
        ("texts", " a, b,,", ["a", "b"]),
        ("texts", '["cn=ml,dc=lab", " b "]', ["cn=ml,dc=lab", "b"]),
        ("texts", " [ ]", []),
        ("texts", "[so] it, b", ["[so] it", "b"]),
        ("networks", "10.0.0.0/8, ::1", [ip_network("10.0.0.0/8"), ip_network("::1/128")]),
    ],
)
def test_lists_are_empty_by_default_and_checked(read: str, text: str, want: object) -> None:
    assert getattr(Env({}), read)("A", doc="x") == []
    assert getattr(Env({"A": text}), read)("A", doc="x") == want


def test_every_port_to_listen_on_has_the_bounds_of_a_port() -> None:
    ports = {name: each.kind for name, each in ENV.declared.items() if name.endswith("_PORT")}
    assert len(ports) > 5
    assert {name for name, kind in ports.items() if not kind.endswith("at most 65535")} == set()


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ("label_keys", "team's"),
        ("label_keys", "a/b/c"),
        ("label_keys", "/team"),
        ("label_keys", "t" * 64),
        ("networks", "10.0.0.1/8"),
        ("networks", "everybody"),
        ("texts", '["a", "b"'),
        ("texts", '["a", 1]'),
        ("texts", '["a", ""]'),
        pytest.param("texts", '["a",' + "[" * 100_000, id="nested too deeply"),
    ],
)
def test_what_is_no_key_or_network_is_refused(read: str, text: str) -> None:
    with pytest.raises(SettingError, match="A must be comma-separated"):
        getattr(Env({"A": text}), read)("A", doc="x")


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        ("integer", "many", "A must be integer, at least 1, not 'many'"),
        ("integer", "0", "A must be integer, at least 1, not '0'"),
        ("integer", "2147483648", "A must be integer, at least 1, not '2147483648'"),
        ("number", "inf", "A must be number, at least 0, not 'inf'"),
        ("number", "1e999", "A must be number, at least 0, not '1e999'"),
        ("switch", "maybe", "A must be on or off, not 'maybe'"),
    ],
)
def test_a_bad_value_names_the_variable_and_what_it_expects(
    read: str, text: str, says: str
) -> None:
    extra = {"minimum": 1} if read == "integer" else {}
    with pytest.raises(SettingError) as caught:
        getattr(Env({"A": text}), read)("A", 1, doc="x", **extra)
    assert str(caught.value) == says


@pytest.mark.parametrize("text", ["nan", "-1", "inf-"])
def test_a_number_below_its_minimum_or_no_number_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        Env({"A": text}).number("A", 1.0, doc="x")


CRON = ["0 0 * * *", "*/5 22-2/2 1,15 * 1-5", "59  23 31 12 6", "05 00 1-9 01-12/3 *"]
NO_CRON = [
    *("", "midnight", "@daily", "0 0 * *", "0 0 * * * *"),
    *("60 0 * * *", "0 24 * * *", "0 0 0 * *", "0 0 * 13 *", "0 0 * * 8", "0 0 32 * *"),
    *("5/2 0 * * *", "*/0 0 * * *", "1,,2 0 * * *", "-1 0 * * *", "0 0 * * MON"),
]


@pytest.mark.parametrize("text", CRON)
def test_a_cron_expression_is_one_that_beat_takes(text: str) -> None:
    found = Env({"A": text}).cron("A", "0 0 * * *", doc="x")
    assert found == " ".join(text.split())
    assert crontab.from_string(found)


@pytest.mark.parametrize(
    ("weekdays", "days"),
    [
        ("7", {0}),
        ("07", {0}),
        ("5-7", {5, 6, 0}),
        ("1-7/2", {1, 3, 5, 0}),
        ("2-7/2", {2, 4, 6}),
        ("0-7", {0, 1, 2, 3, 4, 5, 6}),
        ("7-2", {0, 1, 2}),
        ("7-7", {0}),
        ("3,7", {3, 0}),
    ],
)
def test_sunday_is_the_seventh_day_too(weekdays: str, days: set[int]) -> None:
    found = Env({"A": f"0 6 * * {weekdays}"}).cron("A", "0 0 * * *", doc="x")
    assert crontab.from_string(found).day_of_week == days


def test_the_chart_takes_the_same_cron_expressions() -> None:
    chart = Path(__file__).parents[3] / "charts/ipuhub/values.schema.json"
    usage = json.loads(chart.read_text("utf-8"))["properties"]["usage"]["properties"]
    pattern = re.compile(usage["schedule"]["pattern"])
    sundays = ["0 6 * * 7", "0 6 * * 5-7/2"]
    assert [text for text in (*CRON, *sundays) if not pattern.search(text)] == []
    assert [text for text in NO_CRON if pattern.search(text)] == []


@pytest.mark.parametrize("text", NO_CRON)
def test_another_text_is_no_cron_expression(text: str) -> None:
    with pytest.raises(SettingError, match="A must be cron expression, such as 30 6"):
        Env({"A": text}).cron("A", "0 0 * * *", doc="x")


def test_a_choice_outside_the_list_is_refused() -> None:
    with pytest.raises(SettingError, match="one of a, b"):
        Env({"A": "c"}).choice("A", "a", ("a", "b"), doc="x")


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    assert Env({"A_FILE": str(secret)}).text("A", "", doc="x") == "s3cret"


def test_a_secret_in_both_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="both set"):
        Env({"A": "x", "A_FILE": str(tmp_path / "a")}).text("A", "", doc="x")


def test_a_missing_secret_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="A_FILE.*nowhere"):
        Env({"A_FILE": str(tmp_path / "nowhere")}).text("A", "", doc="x")


def test_every_setting_read_stands_on_the_reference_page() -> None:
    env = Env({})
    env.read_by("Web")
    env.text("C", "", doc="Where.")
    env.read_by("Every process")
    env.integer("B_SECONDS", 5, doc="How long.")
    env.text("A", "", doc="What.")
    lines = settings_page(env.declared.values()).splitlines()
    assert [line for line in lines if line.startswith(("## ", "| `"))] == [
        "## Every process",
        "| `A` | text |  | What. |",
        "| `B_SECONDS` | integer | `5` | How long. |",
        "## Web",
        "| `C` | text |  | Where. |",
    ]


def test_a_database_url_becomes_django_settings() -> None:
    got = database_settings("postgresql://me:p%40ss@db:5433/hub?sslmode=require")
    want = {"NAME": "hub", "USER": "me", "PASSWORD": "p@ss", "HOST": "db", "PORT": 5433}
    assert {key: got[key] for key in want} == want
    options = got["OPTIONS"]
    assert options["sslmode"] == "require"
    assert options["options"].startswith("-c jit=off -c tcp_user_timeout=25s ")
    assert options["connect_timeout"] == "3"  # no page waits for a host that says nothing


def test_the_url_decides_how_long_reaching_the_server_may_take() -> None:
    got = database_settings("postgresql://db/hub?connect_timeout=20")
    assert got["OPTIONS"]["connect_timeout"] == "20"


def test_a_socket_folder_goes_into_the_query() -> None:
    got = database_settings("postgresql:///hub?host=/run/postgresql")
    assert (got["HOST"], got["NAME"]) == ("/run/postgresql", "hub")
    assert "host" not in got["OPTIONS"]


@pytest.mark.parametrize("url", ["sqlite:///x", "mysql://a/b", "postgresql://h:99999/x"])
def test_another_database_is_refused_with_the_form_that_is_wanted(url: str) -> None:
    with pytest.raises(SettingError, match="DATABASE_URL"):
        database_settings(url)
