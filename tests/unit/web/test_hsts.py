"""The scope of the dashboard's HSTS: this host, and others only if an administrator enables it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.forked import answer_of

if TYPE_CHECKING:
    from tests.fakes.forked import Answer

SAY = """
from django.http import HttpResponse
from django.middleware.security import SecurityMiddleware
from django.test import RequestFactory
answer = SecurityMiddleware(lambda _: HttpResponse())
request = RequestFactory().get("/", secure=True, headers={"Host": "localhost"})
print(answer(request).get("Strict-Transport-Security", ""))
"""


def run(given: dict[str, str]) -> Answer:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "ipuhub.settings"} | given
    return answer_of(["-c", SAY], Path(__file__).parents[3], environment)


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({}, "max-age=31536000"),
        ({"IPUHUB_HTTPS": "off"}, ""),
        ({"IPUHUB_HSTS_SUBDOMAINS": "on"}, "max-age=31536000; includeSubDomains"),
        (
            {"IPUHUB_HSTS_SUBDOMAINS": "on", "IPUHUB_HSTS_PRELOAD": "on"},
            "max-age=31536000; includeSubDomains; preload",
        ),
    ],
)
def test_hsts_binds_other_hosts_only_where_it_is_said(given: dict[str, str], header: str) -> None:
    assert run({"IPUHUB_HTTPS": "on"} | given).out.strip() == header


def test_a_preload_that_browsers_refuse_is_refused() -> None:
    assert "turn on both or none" in run({"IPUHUB_HSTS_PRELOAD": "on"}).err
