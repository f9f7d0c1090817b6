"""Log lines carry their fields, no secrets from local variables, and no forged entries."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
import structlog

from ipuhub.process import logs
from tests.builders.oddnames import ODD_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator


FORGED = "pod\n2026-11-21T00:00:00.000000Z [error    ] forged\r\x1b[2J\x9b31m\u2028\x85\u202e"
NAMES = {"forged": FORGED, **ODD_NAMES}


@pytest.fixture(autouse=True)
def other_handlers_come_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def fail_with_a_secret() -> None:
    token = "s3cret-token"
    raise ValueError(len(token))


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_shows_no_local_variables(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", log_format)
    try:
        fail_with_a_secret()
    except ValueError:
        structlog.get_logger("a").exception("it failed", job="x")
    line = capsys.readouterr().err
    assert "it failed" in line
    assert "fail_with_a_secret" in line
    assert "s3cret-token" not in line.replace('token = "s3cret-token"', "")


def test_json_lines_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    structlog.get_logger("a").info("done", job="default/x")
    logging.getLogger("other").warning("and %s", "this")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["job"] == "default/x"
    assert lines[1]["event"] == "and this"


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "text")
    structlog.get_logger("a").info("quiet")
    assert capsys.readouterr().err == ""


def write_five(name: str) -> None:
    """Write `name` as a value, an event, in a list, by the standard library, and in an error."""
    ours, theirs = structlog.get_logger("ours"), logging.getLogger("theirs")
    ours.info("seen", pod=name)
    ours.info(name)
    ours.info("seen", pods=[name])
    theirs.warning("Not Found: %s", name)
    try:
        raise ValueError(name)
    except ValueError:
        ours.exception("failed", pod=name)


@pytest.mark.parametrize("what", NAMES)
def test_text_has_a_line_an_entry_and_indented_tracebacks_whatever_a_name_is(
    capsys: pytest.CaptureFixture[str], what: str
) -> None:
    logs.configure("info", "text")
    write_five(NAMES[what])
    lines = capsys.readouterr().err.removesuffix("\n").split("\n")
    entries = [line for line in lines if not line.startswith("    ")]
    assert len(entries) == 5
    assert all(line[:4].isdigit() and "Z [" in line for line in entries)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("what", NAMES)
def test_json_has_a_line_an_entry_and_the_name_as_it_was(
    capsys: pytest.CaptureFixture[str], what: str
) -> None:
    logs.configure("info", "json")
    write_five(NAMES[what])
    written = capsys.readouterr().err
    entries = [json.loads(line) for line in written.removesuffix("\n").split("\n")]
    assert [entry.get("pod") for entry in entries] == [NAMES[what], None, None, None, NAMES[what]]
    assert entries[1]["event"] == NAMES[what]
    assert written.replace("\n", "").isprintable()


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    ("logger", "extra", "is_ours"),
    [
        ("grpc._common", {}, False),
        ("django.request", {"status_code": 403}, False),
        ("django.request", {"status_code": 500}, True),
        ("ipuhub.other", {}, True),
    ],
)
def test_what_a_client_did_wrong_is_one_line(
    log_format: str,
    logger: str,
    extra: dict[str, int],
    is_ours: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("info", log_format)
    logs.configure("info", log_format)
    try:
        fail_with_a_secret()
    except ValueError:
        logging.getLogger(logger).exception("Failed: %s", "/path", extra=extra)
    output = capsys.readouterr().err
    assert ("Traceback" in output) is is_ours
    assert (len(output.splitlines()) == 1) is (not is_ours or log_format == "json")
    assert "Failed: /path" in output
