"""The dashboard's pages over HTTP, with a real database and no other services."""

from __future__ import annotations

import gzip
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.utils import timezone

from dashboard import live
from partitions.connections import opened
from tests.builders import jobhistory
from tests.builders.roles import grant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def plain_http_and_no_cluster(settings: SettingsWrapper, tmp_path: Path) -> Iterator[None]:
    settings.SECURE_SSL_REDIRECT = False
    settings.KUBECONFIG = str(tmp_path / "no-kubeconfig")
    settings.PROXY_URL = "http://127.0.0.1:9"
    live.live_reader.cache_clear()
    opened.cache_clear()
    yield
    live.live_reader.cache_clear()
    opened.cache_clear()


def sign_in(client: Client, *, staff: bool) -> None:
    users = get_user_model().objects
    client.force_login(users.create_user("somebody", password="x", is_staff=staff))


def test_a_stranger_is_sent_to_the_sign_in_page(client: Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/")


def test_a_user_without_a_namespace_is_told_who_grants_one(client: Client) -> None:
    sign_in(client, staff=False)
    answer = client.get("/")
    assert answer.status_code == 200
    assert "You do not have access to any namespace yet" in answer.content.decode()
    assert "grant_namespace somebody" in answer.content.decode()
    grant(get_user_model().objects.get(username="somebody"), "accountant")
    assert "any namespace yet" not in client.get("/").content.decode()


def test_without_a_cluster_the_page_says_what_does_not_answer(client: Client) -> None:
    sign_in(client, staff=True)
    answer = client.get("/")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "no-kubeconfig" in text
    assert "No data has been read yet" in text
    assert "Traceback" not in text


def empty_state(text: str, among: str = "") -> tuple[str, str]:
    """Return the one sentence and the address of the one action of an empty part of a page."""
    parts = re.findall(r'<div class="empty">(.*?)</div>\s*</div>', text, re.DOTALL)
    (part,) = [each for each in parts if among in each]
    (action,) = re.findall(r'<a class="btn" href="([^"]+)">[^<]+</a>', part)
    words = re.sub(r"<[^>]+>", "", part.partition('<div class="empty-action">')[0]).strip()
    assert re.fullmatch(r"[A-Z][^.]+\.", words), words
    return words, action


@pytest.mark.parametrize("path", ["/", "/fleet/", "/fleet/table/"])
def test_a_fleet_without_ipus_says_so_in_one_sentence_with_one_action(
    client: Client, path: str
) -> None:
    """The components, for those who may see them."""
    sign_in(client, staff=True)
    for address in ("/system/", "/jobs/"):
        words, action = empty_state(client.get(path).content.decode(), "IPUs")
        assert (words, action) == ("No IPUs are known until a V-IPU controller answers.", address)
        assert client.get(action).status_code == 200
        get_user_model().objects.update(is_staff=False)


def test_the_jobs_that_ended_last_stand_in_six_lines_with_their_cause(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newest first: state, name, user, why it failed or how long it ran, IPUs, age."""
    sign_in(client, staff=True)
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    for number in range(8):
        failed = {"status": "Failed", "reason": "OOMKilled", "message": "A long sentence."}
        coded = {
            "status": "Failed",
            "reason": "IPUJobFailed",
            "message": "launcher exited with code 137",
        }
        outcome = (failed, coded, {"status": "Completed"})[min(number, 2)]
        began, ended = now - timedelta(hours=3), now - timedelta(minutes=number + 1, seconds=5)
        times = {"created_at": began, "completed_at": ended}
        jobhistory.job(f"job-{number}", user="ada", **times, **outcome)
    card = client.get("/").content.decode().partition('<div class="card ended">')[2]
    rows = re.findall("<tr data-toast.*?</tr>", card.partition("</table>")[0], re.DOTALL)
    words = [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in rows]
    assert words == [
        "Failed job-0 ada out of memory 4 IPUs 65 s ago",
        "Failed job-1 ada exit code 137 4 IPUs 2 min ago",
        *(f"Completed job-{n} ada 2 h {58 - n} min 4 IPUs {n + 1} min ago" for n in range(2, 6)),
    ]


def test_htmx_gets_the_changing_part_only_and_304_when_nothing_changed(client: Client) -> None:
    sign_in(client, staff=True)
    answer = client.get("/", headers={"HX-Request": "true"})
    assert "<html" not in answer.content.decode()
    assert "No IPUJobs yet" in answer.content.decode()
    again = client.get("/", headers={"HX-Request": "true", "If-None-Match": answer["ETag"]})
    assert again.status_code == 304


def test_pages_and_json_are_compressed_for_browsers_that_ask_and_files_are_not(
    client: Client,
) -> None:
    sign_in(client, staff=True)
    asks = {"Accept-Encoding": "gzip"}
    for address in ("/", "/api/v1/"):
        plain, packed = client.get(address), client.get(address, headers=asks)
        assert "Content-Encoding" not in plain
        assert (packed["Content-Encoding"], packed["Vary"].count("Accept-Encoding")) == ("gzip", 1)
        assert len(packed.content) < len(plain.content) / 2
        assert b"jobs" in gzip.decompress(packed.content)
    part = client.get("/", headers={"HX-Request": "true"} | asks)
    known = {"HX-Request": "true", "If-None-Match": part["ETag"]} | asks
    assert client.get("/", headers=known).status_code == 304
    assert "Content-Encoding" not in client.get("/jobs/?format=csv", headers=asks)


def test_every_page_forbids_inline_scripts_and_framing(client: Client) -> None:
    answer = client.get("/login/")
    policy = answer["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "<style" not in answer.content.decode()
    assert " style=" not in answer.content.decode()
    assert answer["X-Frame-Options"] == "DENY"


def test_health_needs_nobody(client: Client) -> None:
    assert client.get("/healthz").content == b"ok"
    assert client.get("/readyz").content == b"ok"


def test_it_is_not_ready_without_postgres(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("ipuhub.web.middleware.connection.cursor", away)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"postgres: does not answer\n")
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_the_overview_only_reads(client: Client, method: str) -> None:
    sign_in(client, staff=True)
    assert getattr(client, method)("/").status_code == 405
