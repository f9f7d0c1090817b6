"""Log lines carry their fields, and no secrets from local variables."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
import structlog

from ipuhub import logs

if TYPE_CHECKING:
    from collections.abc import Iterator


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
