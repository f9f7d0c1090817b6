"""USAGE_ENABLED: off removes usage and changes nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import reload
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command
from django.urls import clear_url_caches

import dashboard.apiurls
import dashboard.urls
import ipuhub.urls
from tests.builders import jobhistory
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import store_partition
from tests.builders.rates import store_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

PAGES = ("/usage/", "/usage/chart.json", "/usage/pods/", "/usage/faults/", "/usage/gaps/")
REPORTS = ("/usage/reports/", "/report/monthly", "/report/monthly/2026/10", "/health")
API = ("summary", "series", "lifetimes", "faults", "gaps", "partitions", "reports", "reports/runs")
OF_USAGE = (*PAGES, *REPORTS, "/utilization/", *(f"/api/v1/usage/{name}" for name in API))
OTHERS = ("/", "/jobs/", "/partitions/", "/api/v1/jobs", "/api/v1/partitions", "/api/v1/schema/")


def reload_urls() -> None:
    for module in (dashboard.apiurls, dashboard.urls, ipuhub.urls):
        reload(module)
    clear_url_caches()


@pytest.fixture
def usage_off(settings: SettingsWrapper) -> Iterator[None]:
    settings.USAGE_ENABLED = False
    reload_urls()
    yield
    settings.USAGE_ENABLED = True
    reload_urls()


def status(user: User, address: str) -> int:
    client = api_client(user) if address.startswith(("/api/", "/report/")) else browser(user)
    return client.get(address).status_code


@pytest.mark.usefixtures("usage_off")
def test_with_usage_off_its_addresses_are_unknown(admin: User) -> None:
    job = jobhistory.job(status="Running")
    for address in (*OF_USAGE, f"/api/v1/jobs/{job.uid}/usage"):
        assert status(admin, address) == 404, address
    for address in (*OTHERS, f"/jobs/{job.uid}/", f"/api/v1/jobs/{job.uid}/pods"):
        assert status(admin, address) == 200, address


@pytest.mark.usefixtures("usage_off")
def test_with_usage_off_pages_do_without_it(admin: User) -> None:
    job = jobhistory.job(status="Running")
    store_rate("partition-ipu", "1")
    store_partition("2026-11-20T00:00", "2026-11-20T01:00")
    texts = ('href="/usage/', 'href="/utilization/', "IPU-hours", "Allocated so far", " EUR")
    for address in ("/", "/jobs/", f"/jobs/{job.uid}/", "/partitions/"):
        html = browser(admin).get(address).content.decode()
        for text in texts:
            assert text not in html, (address, text)


@pytest.mark.usefixtures("usage_off")
def test_the_document_names_them_with_usage_on_alone(
    admin: User, settings: SettingsWrapper
) -> None:
    found = []
    for settings.USAGE_ENABLED in (False, True):
        reload_urls()
        paths = browser(admin).get("/api/v1/schema/").json()["paths"]
        found.append("/api/v1/usage/summary" in paths)
    assert found == [False, True]


def test_with_usage_on_they_are_there(admin: User) -> None:
    job = jobhistory.job(status="Running")
    for address in OF_USAGE:
        if address != "/report/monthly/2026/10":  # there is no such report
            assert status(admin, address) == 200, address
    assert status(admin, f"/api/v1/jobs/{job.uid}/usage") == 200
    assert "Allocated so far" in browser(admin).get(f"/jobs/{job.uid}/").content.decode()
    assert 'href="/usage/' in browser(admin).get("/").content.decode()


@pytest.mark.parametrize(
    "command",
    [
        ("run_prober", "--once"),
        ("run_monitor", "--once"),
        ("make_usage_reports",),
        ("sum_usage_days",),
        ("purge_usage", "--dry-run"),
        ("patch_legacy_pods",),
        ("import_primehub", "--dry-run"),
    ],
)
def test_commands_of_usage_refuse_to_run_with_usage_off(
    settings: SettingsWrapper, command: tuple[str, ...]
) -> None:
    settings.USAGE_ENABLED = False
    with pytest.raises(CommandError, match="usage is off"):
        call_command(*command)


@pytest.mark.parametrize(("switch", "want"), [("on", "True"), ("off", "False")])
def test_nothing_is_scheduled_with_usage_off(switch: str, want: str) -> None:
    code = "from ipuhub.celery import app; print(bool(app.conf.beat_schedule))"
    environment = os.environ | {"USAGE_ENABLED": switch}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == want
