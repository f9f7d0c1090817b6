"""Commands with settings of no use: a sentence and an exit code, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.forked import answer_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("command", "setting", "code", "words"),
    [
        ("run_vipu_proxy", ("PROXY_PORT", "abc"), 2, "PROXY_PORT must be integer"),
        ("run_vipu_proxy --port 70000", ("X", ""), 2, "invalid port_number value: '70000'"),
        ("hide_ipus", ("X", ""), 1, "Kubeconfig /nowhere"),
        ("check_uninstall", ("X", ""), 1, "Kubeconfig /nowhere"),
        ("purge_usage", ("DATABASE_URL", "mysql://x"), 2, "must be postgresql://"),
        ("run_operator", ("IPUHUB_METRICS_TOKEN_FILE", "/nowhere"), 2, "No such file"),
        ("run_web", ("DATABASE_URL_FILE", "/nowhere"), 2, "DATABASE_URL_FILE: No such file"),
        ("run_prober", ("DATABASE_URL_FILE", "/nowhere"), 2, "DATABASE_URL_FILE: No such file"),
        (
            "make_usage_reports --month 2026-10",
            ("DATABASE_URL", "postgres://x:y@127.0.0.1:9/z"),
            1,
            "The database of DATABASE_URL does not answer",
        ),
    ],
)
def test_a_setting_of_no_use_is_said_in_words(
    command: str, setting: tuple[str, str], code: int, words: str
) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "DATABASE_URL"}
    given = {"DJANGO_SETTINGS_MODULE": "", "KUBECONFIG": "/nowhere"} | dict([setting])
    done = answer_of(["manage.py", *command.split()], ROOT, environment | given)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.out + done.err
    if setting[0].endswith("_FILE"):
        assert len(done.err.splitlines()) == 1
