"""A dashboard that shuts down still answers requests that reach it."""

from __future__ import annotations

import http.client

import pytest

from tests.fakes.waiting import wait_until
from tests.integration.web.webprocess import running, status

AN_HOUR = "3600"
pytestmark = pytest.mark.django_db(transaction=True)


def get_login(caller: http.client.HTTPConnection) -> tuple[int, str | None]:
    caller.request("GET", "/login/")
    answer = caller.getresponse()
    answer.read()
    return answer.status, answer.getheader("Connection")


def test_it_answers_for_a_while_and_sends_its_callers_to_another() -> None:
    with running(IPUHUB_WEB_DRAIN_SECONDS=AN_HOUR) as (port, process):
        caller = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
        assert get_login(caller) == (200, None)
        assert status(port, "/readyz") == 200
        process.terminate()
        wait_until(lambda: status(port, "/readyz") == 503, "no longer ready")
        assert status(port, "/healthz") == 200
        assert get_login(caller) == (200, "close")  # by the connection that it has had
        assert get_login(caller) == (200, "close")  # and by a new connection


def test_without_a_time_to_answer_it_ends_at_once() -> None:
    with running() as (_, process):
        process.terminate()
        process.join(90)
        assert process.exitcode == 0
