"""Settings of sign-in that contradict each other stop the process with a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ISSUER = "IPUHUB_OIDC_ISSUER"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({ISSUER: "https://a.example"}, "IPUHUB_OIDC_CLIENT_ID is not: set both"),
        ({ISSUER: "http://a.example", "IPUHUB_OIDC_CLIENT_ID": "x"}, "must be an https:// address"),
        ({ISSUER: "a.example", "IPUHUB_OIDC_CLIENT_ID": "x"}, "must be an https:// address"),
        ({"IPUHUB_AUTH_HEADER_USER": "X-User"}, "IPUHUB_AUTH_HEADER_PROXIES is not"),
        ({"IPUHUB_AUTH_HEADER_USER": "X_User"}, "IPUHUB_AUTH_HEADER_USER must be"),
    ],
)
def test_a_contradiction_is_named(given: dict[str, str], want: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ipuhub.variables.signin"],
        env=os.environ | given,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode != 0
    assert want in done.stderr
