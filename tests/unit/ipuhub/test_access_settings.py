"""Contradictory access settings stop the process with a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.forked import answer_of

ROOT = Path(__file__).parents[3]
ROLES, GROUPS = "IPUHUB_API_SERVICE_ACCOUNT_ROLES", "IPUHUB_OIDC_GROUP_ROLES"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({ROLES: "grafana=viewer"}, "must be NAMESPACE/NAME"),
        ({ROLES: "a/b=admin"}, "no account is an administrator of everything"),
        ({ROLES: "a/b=owner"}, "'owner' is not a role"),
        ({"IPUHUB_ACCESS": "ldap"}, "IPUHUB_ACCESS"),
        ({GROUPS: "ml=operator:Team A"}, "is not a valid namespace name"),
        ({"IPUHUB_ACCESS_GROUPS": "oidc:"}, "must have {group} once"),
        ({"IPUHUB_ACCESS_GROUPS": "{group}{user}"}, "must have {group} once"),
        ({GROUPS: "operator"}, "must be GROUP=ROLE"),
        ({GROUPS: '["cn=ml,dc=lab"]'}, "'lab' is not a role"),
        ({GROUPS: '["cn=ml,dc=lab=viewer"'}, "must be comma-separated list or JSON list"),
        ({GROUPS: "ops=admin"}, "IPUHUB_OIDC_ADMIN_GROUPS"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(given: dict[str, str], want: str) -> None:
    script = "import ipuhub.variables.access, ipuhub.variables.signin"
    done = answer_of(["-c", script], ROOT, os.environ | given)
    assert done.code != 0
    assert want in done.err


def test_a_group_with_commas_gets_its_roles() -> None:
    text = '["cn=ml,ou=groups,dc=lab=operator:team-a", "finance=accountant"]'
    script = "from ipuhub.variables.signin import OIDC_GROUP_ROLES as r; print(sorted(r))"
    done = answer_of(["-c", script], ROOT, os.environ | {GROUPS: text})
    assert done.out == "['cn=ml,ou=groups,dc=lab', 'finance']\n"
