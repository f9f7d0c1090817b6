"""Action settings that would let a user act as a component stop the process with a message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.forked import answer_of

if TYPE_CHECKING:
    from tests.fakes.forked import Answer

USERS, EVERYONE = "IPUHUB_ACTIONS_USERS", "IPUHUB_ACTIONS_SINGLE_SIGN_ON"
GROUPS, NAMED = "IPUHUB_ACTIONS_GROUPS", "IPUHUB_ACCESS_GROUPS"


def run(given: dict[str, str]) -> Answer:
    code = "from ipuhub.variables import actions as a; print(a.ACTIONS, a.ACTIONS_USERS)"
    return answer_of(["-c", code], Path(__file__).parents[3], os.environ | given)


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
    assert done.code != 0
    assert want in done.err


def test_actions_are_off_and_users_are_read() -> None:
    done = run({USERS: "admin=ops@lab, eve=https://issuer#1", EVERYONE: "{issuer}#{subject}"})
    assert done.out == "False {'admin': 'ops@lab', 'eve': 'https://issuer#1'}\n"
