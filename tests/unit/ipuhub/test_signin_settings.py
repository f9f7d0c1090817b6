"""Settings of sign-in that contradict each other stop the process with a sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.forked import answer_of

if TYPE_CHECKING:
    from tests.fakes.forked import Answer

ISSUER, SCOPES = "IPUHUB_OIDC_ISSUER", "IPUHUB_OIDC_SCOPES"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({ISSUER: "https://a.example"}, "IPUHUB_OIDC_CLIENT_ID is not: set both"),
        ({ISSUER: "http://a.example", "IPUHUB_OIDC_CLIENT_ID": "x"}, "must be an https:// address"),
        ({ISSUER: "a.example", "IPUHUB_OIDC_CLIENT_ID": "x"}, "must be an https:// address"),
        ({SCOPES: "openid profile"}, "'openid profile' is not a scope. Separate scopes by commas"),
        ({SCOPES: 'openid,"groups"'}, "is not a scope"),
        ({SCOPES: "openid,gr\\oups"}, "is not a scope"),
        ({SCOPES: "openid,grüppen"}, "is not a scope"),
        ({"IPUHUB_AUTH_HEADER_USER": "X-User"}, "IPUHUB_AUTH_HEADER_PROXIES is not"),
        ({"IPUHUB_AUTH_HEADER_USER": "X_User"}, "IPUHUB_AUTH_HEADER_USER must be"),
    ],
)
def test_a_contradiction_is_named(given: dict[str, str], want: str) -> None:
    done = started("import ipuhub.variables.signin", given)
    assert done.code != 0
    assert want in done.err


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, "openid profile email"),
        ({SCOPES: "openid, profile, groups"}, "openid profile groups"),
        ({SCOPES: "groups,api://ipuhub/read,groups"}, "openid groups api://ipuhub/read"),
        ({SCOPES: ""}, "openid"),
    ],
)
def test_openid_is_always_a_scope_and_none_is_requested_twice(
    given: dict[str, str], want: str
) -> None:
    read = "from ipuhub.variables.signin import OIDC_SCOPES; print(*OIDC_SCOPES)"
    assert started(read, given).out.strip() == want


def started(program: str, given: dict[str, str]) -> Answer:
    return answer_of(["-c", program], Path(__file__).parents[3], os.environ | given)
