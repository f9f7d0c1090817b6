"""The API's rate limit, its index and its page of reference."""

from __future__ import annotations

import html
import json
import re
import shlex
from typing import TYPE_CHECKING

import jsonschema
import pytest

from ipuhub.api import limits
from ipuhub.api.limits import Counts
from tests.builders.clients import api_client, browser
from tests.builders.documents import openapi

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper


def test_a_window_begins_with_its_first_request_and_ends_a_minute_later() -> None:
    counts = Counts()
    assert [counts.take("a", 2, now).remaining for now in (0.0, 10.0)] == [1, 0]
    refused = counts.take("a", 2, 30.5)
    assert (refused.is_exceeded, refused.remaining, refused.seconds) == (True, 0, 30)
    assert not counts.take("b", 2, 30.5).is_exceeded
    assert counts.take("a", 2, 60.0) == (2, 1, 60, False)


def test_callers_of_past_windows_are_forgotten() -> None:
    counts = Counts()
    for number in range(5000):
        counts.take(f"token {number}", 1, number / 10)
    assert len(counts._windows) < 2000


@pytest.fixture
def _two_a_minute(settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.API_REQUESTS_PER_MINUTE = 2
    monkeypatch.setattr(limits, "COUNTS", Counts())


@pytest.mark.usefixtures("_two_a_minute")
def test_a_token_beyond_its_limit_is_told_when_to_come_back(alice: User) -> None:
    first, second = api_client(alice), api_client(alice)
    answers = [first.get("/api/v1/jobs") for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert answers[0]["RateLimit-Policy"] == '"minute";q=2;w=60'
    assert answers[0]["RateLimit"].startswith('"minute";r=1;t=')
    refused = answers[2]
    assert 0 < int(refused["Retry-After"]) <= 60
    assert refused["RateLimit"].startswith('"minute";r=0;t=')
    assert refused.json()["type"] == "urn:ipuhub:problem:too-many-requests"
    assert f"Try again in {refused['Retry-After']} s." in refused.json()["detail"]
    assert second.get("/api/v1/jobs").status_code == 200  # a token of its own
    assert browser(alice).get("/api/v1/jobs").status_code == 200


def test_there_is_a_limit_unless_none_is_set(alice: User, settings: SettingsWrapper) -> None:
    answer = api_client(alice).get("/api/v1/jobs")
    assert answer["RateLimit-Policy"] == '"minute";q=1200;w=60'
    assert answer["RateLimit"].startswith('"minute";r=1199;t=')
    settings.API_REQUESTS_PER_MINUTE = 0
    assert "RateLimit" not in api_client(alice).get("/api/v1/jobs").headers


def test_the_index_links_to_addresses_that_answer(admin: User) -> None:
    client = api_client(admin, "reports")
    index = client.get("/api/v1/").json()
    assert {"jobs", "fleet", "usage/summary", "usage/reports", "schema/"} <= set(index["links"])
    reader = api_client(admin)
    for address in (index["links"]["jobs"], index["links"]["usage/rates"]):
        assert reader.get(address).status_code == 200


def test_the_page_shows_every_operation_and_needs_no_other_host(alice: User) -> None:
    answer = browser(alice).get("/api/")
    page = answer.content.decode()
    for path, methods in openapi()["paths"].items():
        assert path in page
        for each in methods.values():
            assert f'id="{each["operationId"]}"' in page
    assert "urn:ipuhub:problem:missing-scope" in page
    assert "https://" not in re.sub(r"https://(www\.w3\.org|chat\.example\.com)", "", page)


def test_the_operations_are_rendered_for_the_first_caller_alone(alice: User, admin: User) -> None:
    first = browser(alice).get("/api/")
    second = browser(admin).get("/api/")
    assert [each.name for each in second.templates if each.name == "_api.html"] == []
    operation = 'id="jobs_list"'
    assert operation in first.content.decode()
    assert operation in second.content.decode()


def test_every_operation_has_an_example_whose_body_fits_its_schema(alice: User) -> None:
    document = openapi()
    page = html.unescape(browser(alice).get("/api/").content.decode())
    written = 0
    for path, methods in document["paths"].items():
        for method, each in methods.items():
            example = page.partition(f'id="{each["operationId"]}"')[2].partition("</code></pre>")[0]
            command = shlex.split(example.rpartition("<code>")[2])
            assert command[0] == "curl"
            assert command[-1].startswith(f"$HUB{path.partition('{')[0]}"), command
            assert "{" not in command[-1]
            assert "$UID" not in command[-1]  # bash keeps the user's number there
            assert ("-X" in command) == (method != "get")
            if body := each.get("requestBody"):
                written += 1
                sent = json.loads(command[command.index("-d") + 1])
                schema = body["content"]["application/json"]["schema"]
                jsonschema.validate(sent, schema | {"components": document["components"]})
    assert written == 13
