"""Commands for people, started beside a running demo, find its database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command, get_commands
from django.db import connection

from devcluster.demo.postgres import EmbeddedPostgres
from ipuhub.database import NO_DATABASE
from ipuhub.models import ApiToken

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def without_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Forget which database there is; yield its URL."""
    known = dict(connection.settings_dict)
    place = f"{known['HOST']}:{known['PORT']}/{known['NAME']}"
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "NAME", NO_DATABASE)
    yield f"postgresql://{known['USER']}:{quote(known['PASSWORD'], safe='')}@{place}"
    connection.settings_dict.update(known)
    settings.DATABASES["default"].update(known)


def test_users_and_tokens_are_made_in_the_demo(
    tmp_path: Path,
    without_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "ports.json").write_text(json.dumps({"PostgreSQL": 1, "web": 8765}))
    monkeypatch.setattr(EmbeddedPostgres, "url", without_url)
    there: dict[str, Any] = {"dir": tmp_path}
    call_command("make_user", "ann", **there)
    connection.settings_dict["NAME"] = NO_DATABASE
    call_command("make_api_token", "ann", **there)
    output = capsys.readouterr()
    token = output.out.splitlines()[-1]
    assert f'Bearer {token}" http://localhost:8765/api/v1/jobs' in output.err
    assert get_user_model().objects.get().username == "ann"
    assert ApiToken.objects.count() == 1


@pytest.mark.parametrize(
    "command",
    [
        ["make_user", "ann"],
        ["make_api_token", "ann"],
        ["grant_namespace", "ann", "team-a"],
        ["changepassword", "ann"],
        ["make_usage_reports"],
        ["sum_usage_days"],
        ["purge_usage"],
    ],
)
def test_without_a_demo_each_says_what_to_do(
    tmp_path: Path, without_url: str, command: list[str]
) -> None:
    with pytest.raises(CommandError, match=r"no demo found in .* or set DATABASE_URL"):
        call_command(*command, dir=tmp_path)


def test_changepassword_is_ours() -> None:
    assert get_commands()["changepassword"] == "ipuhub"


def test_a_person_reads_a_sentence(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DATABASE", "DJANGO"))}
    command = [sys.executable, "manage.py", "make_user", "ann", "--dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("CommandError: no demo found in ")
