"""PrimeHub Usage's paths: its shapes, and who may read them without a token."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.builders.clients import api_client
from tests.builders.lifetimes import store_pod
from tests.integration.usage.reading import make

pytestmark = pytest.mark.django_db(transaction=True)
PATHS = ("/report/monthly", "/report/monthly/2026/10", "/report/monthly/details/2026/10")
CONSOLE = "10.1.2.3"


@pytest.fixture(autouse=True)
def _october(settings) -> None:
    settings.USAGE_OPEN_PRIMEHUB_PATHS = [ip_network("10.1.0.0/16"), ip_network("fd00::/8")]
    settings.TRUSTED_PROXIES = []
    store_pod("2026-10-01T00:00", "2026-10-02T00:00", group="g,1", user="ann", uid="u1")
    make("2026-10", "2026-11-03T00:00")
    make("2026-09", "2026-11-03T00:00")


def read(path: str, address: str = CONSOLE, forwarded: str = "", **headers: str):
    more = {"X-Forwarded-For": forwarded} if forwarded else {}
    return Client(REMOTE_ADDR=address, headers=more | headers).get(path)


def status(path: str, *where: str) -> int:
    answer = read(path, *where)
    answer.close()
    return answer.status_code


def test_the_console_reads_what_primehub_usage_answered() -> None:
    months = read("/report/monthly", Accept="text/html")
    assert months.json() == ["2026/10", "2026/9"]
    assert months["Content-Type"] == "application/json"
    summary = b"".join(read("/report/monthly/2026/10")).decode()
    assert summary == (
        "report_month,group,user,component,gpu_core_hours,cpu_core_hours,gb_memory_hours,"
        "usage_hours,running\n"
        '202610,"g,1",ann,ipujob,0.00000,24.00000,24.00000,24.00000,N\n'
    )
    details = b"".join(read("/report/monthly/details/2026/10")).decode()
    assert details == (
        "report_month,group,user,component,component_name,cpu_core_hours,gpu_core_hours,"
        "gb_memory_hours,usage_hours,instance_type,instance_cpu_core,instance_gpu_core,"
        "instance_memory_gb,pod_name,k8s_uid,start_time,end_time,running\n"
        '202610,"g,1",ann,ipujob,job,24.00000,0.00000,24.00000,24.00000,ipu-4,1.00000,0.00000,'
        "1.00000,pod,u1,2026-10-01 00:00:00,2026-10-02 00:00:00,N\n"
    )
    health = read("/health", "192.0.2.9")
    assert (health.status_code, health.content) == (200, b"HEALTH")


def test_only_the_listed_networks_need_no_token(settings) -> None:
    for path in PATHS:
        assert status(path) == 200
        assert status(path, "fd00::7") == 200
        for stranger in ("192.0.2.9", ""):
            assert status(path, stranger, CONSOLE) == 401
    settings.TRUSTED_PROXIES = [ip_network("192.0.2.0/24")]
    for path in PATHS:
        assert status(path, "192.0.2.9", CONSOLE) == 200
        assert status(path, "192.0.2.9", f"{CONSOLE}, 203.0.113.5") == 401


def test_nothing_is_open_by_default(settings) -> None:
    settings.USAGE_OPEN_PRIMEHUB_PATHS = []
    assert [status(path) for path in PATHS] == [401, 401, 401]


def test_a_token_counts_for_more_than_the_address(settings) -> None:
    charlie = get_user_model().objects.create_user("charlie", password="x")
    client = api_client(charlie)
    for path in PATHS:
        assert client.get(path, REMOTE_ADDR=CONSOLE).status_code == 403
        wrong = read(path, Authorization="Bearer ipuhub_wrong")
        assert wrong.status_code == 401


def test_other_paths_stay_closed_to_those_networks() -> None:
    for path in (
        "/api/v1/usage/reports",
        "/api/v1/usage/reports/2026-10/summary.csv",
        "/api/v1/usage/summary",
    ):
        assert status(path) == 401
    assert Client(REMOTE_ADDR=CONSOLE).post("/report/monthly").status_code == 401


def test_each_read_without_a_token_is_counted_and_logged() -> None:
    def count() -> float:
        labels = {"path": "details"}
        return REGISTRY.get_sample_value("ipuhub_open_report_reads_total", labels) or 0

    before = count()
    with capture_logs() as lines:
        status(PATHS[2])
        status(PATHS[2], "192.0.2.9")
    assert count() == before + 1
    (line,) = [line for line in lines if line["event"] == "report read without a token"]
    assert CONSOLE in line.values()


def test_a_month_whose_report_is_not_made_is_a_404_with_a_sentence() -> None:
    store_pod("2026-08-01T00:00", "2026-08-02T00:00")
    for path, sentence in (
        ("/report/monthly/2026/8", "There is no report of 2026-08 yet."),
        ("/report/monthly/details/2026/13", "is not a month"),
        ("/report/monthly/2999/1", "has not begun yet"),
    ):
        answer = read(path)
        assert answer.status_code == 404
        assert sentence in answer.json()["detail"]
