"""Commands for people, started beside a running demo, find its database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

from ipuhub.demo.ports import choose_port
from ipuhub.demo.postgres import EmbeddedPostgres
from tests.fakes.waiting import wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def manage(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command with `--dir` of a demo's folder, as a person does: nothing else is set."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DATABASE", "DJANGO"))}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", *arguments, "--dir", str(tmp_path)]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_users_and_tokens_are_made_in_the_demo(
    tmp_path: Path, manage: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    port = choose_port("PostgreSQL of a demo", 25532, set()).number
    (tmp_path / "ports.json").write_text(json.dumps({"PostgreSQL": port, "web": 8765}))
    server = EmbeddedPostgres(tmp_path / "postgres", port, durable=False)
    server.prepare()
    process = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
    try:
        wait_until(server.is_ready, "PostgreSQL")
        url = urlsplit(server.url)
        environment = os.environ | {"DATABASE_URL": server.url}
        assert unquote(url.password or "")
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env=environment, check=True)
        made = manage("make_user", "ann")
        assert made.returncode == 0, made.stderr
        token = manage("make_api_token", "ann")
        assert token.stdout.startswith("ipuhub_")
        assert f'{token.stdout.strip()}" http://localhost:8765/api/v1/jobs' in token.stderr
        assert "ann sees: team-a" in manage("grant_namespace", "ann", "team-a").stdout
        assert manage("purge_usage").returncode == 0
    finally:
        process.terminate()
        process.wait(90)


@pytest.mark.parametrize("command", ["make_user", "make_api_token", "changepassword"])
def test_without_a_demo_it_says_what_to_do(
    manage: Callable[..., subprocess.CompletedProcess[str]], command: str
) -> None:
    done = manage(command, "ann")
    assert done.returncode != 0
    assert "there is no demo in" in done.stderr
    assert "set DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr
