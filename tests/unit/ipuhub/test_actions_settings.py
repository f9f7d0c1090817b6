"""Action settings that would let a user act as a component stop the process with a message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

USERS, EVERYONE = "IPUHUB_ACTIONS_USERS", "IPUHUB_ACTIONS_SINGLE_SIGN_ON"
GROUPS, NAMED = "IPUHUB_ACTIONS_GROUPS", "IPUHUB_ACCESS_GROUPS"


def run(given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "from ipuhub.variables import actions as a; print(a.ACTIONS, a.ACTIONS_USERS)"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | given,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({USERS: "admin"}, "must be NAME=KUBERNETES"),
        ({USERS: "admin=system:admin"}, "must not begin with 'system:'"),
        ({USERS: "a=b,a=c"}, "each NAME once"),
        ({EVERYONE: "everyone"}, "must contain {subject} or {username}"),
        ({EVERYONE: "{issuer}"}, "same Kubernetes user"),
        ({EVERYONE: "system:{subject}"}, "must not begin with 'system:'"),
        ({EVERYONE: "{subject.__class__}"}, "must contain {subject} or {username}"),
        ({EVERYONE: "{subject"}, "must contain {subject} or {username}"),
        ({GROUPS: "lab:ml,system:masters", NAMED: "lab:{group}"}, "must not begin with 'system:'"),
        ({GROUPS: "lab:ml"}, "needs IPUHUB_ACCESS_GROUPS"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(given: dict[str, str], want: str) -> None:
    done = run(given)
    assert done.returncode != 0
    assert want in done.stderr


def test_actions_are_off_and_users_are_read() -> None:
    done = run({USERS: "admin=ops@lab, eve=https://issuer#1", EVERYONE: "{issuer}#{subject}"})
    assert done.stdout == "False {'admin': 'ops@lab', 'eve': 'https://issuer#1'}\n"
