from __future__ import annotations

import base64
import hashlib

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from ipuhub.models import RecordFault
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_pod
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.integration.usage.reading import UTC_ZONE, make, text_of
from usage.models import Rate, ReportRun
from usage.reports.ranges import RangeFile, range_of
from usage.reports.runs import do_range, request_range

pytestmark = [
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def alice():
    return get_user_model().objects.create_user("alice", password="x")


@pytest.fixture
def accountant():
    user = get_user_model().objects.create_user("carol", password="x")
    grant(user, "accountant")
    return user


@pytest.fixture
def dora():
    return get_user_model().objects.create_user("dora", is_staff=True)


@pytest.fixture
def october():
    store_rate("cpu", "0.5")
    lifetime = store_pod("2026-10-01T00:00", "2026-10-02T00:00", cpu=1)
    make("2026-10", "2026-12-03T00:00")
    return lifetime


def _a_range() -> ReportRun:
    now = timezone.now()
    covers = range_of(at("2026-10-01T00:00"), at("2026-10-02T00:00"), now, UTC_ZONE)
    run = request_range(RangeFile(covers, "details"), "demand", "carol", now)
    return do_range(run, UTC_ZONE)


_SEEN = (
    "/usage/reports/",
    "/usage/rates/",
    "/usage/?month=2026-10",
    "/usage/pods/?namespace=team-a",
    "/usage/faults/",
    "/report/monthly",
    "/report/monthly/2026/10",
    "/api/v1/usage/reports",
    "/api/v1/usage/rates",
    "/api/v1/usage/reports/2026-10/summary.csv",
    "/api/v1/usage/reports/2026-10/details.jsonl",
    "/api/v1/usage/summary?month=2026-10&namespace=team-a",
    "/api/v1/usage/partitions?month=2026-10&namespace=team-a",
)


@pytest.mark.usefixtures("october")
@pytest.mark.parametrize("address", _SEEN)
def test_an_accountant_sees_all_usage_and_reports(accountant, address: str):
    client = (
        api_client(accountant) if address.startswith(("/api", "/report")) else browser(accountant)
    )
    answer = client.get(address)
    answer.close()  # a file holds its snapshot until somebody has read it, or left
    assert answer.status_code == 200


@pytest.mark.parametrize("address", ["/usage/faults/", "/api/v1/usage/faults"])
def test_an_accountant_asks_for_the_faults_of_any_namespace(accountant, address: str):
    now, common = timezone.now(), {"watch": "pods", "code": "c", "message": "m"}
    for name in ("team-a", "team-b"):
        times = {"first_at": now, "last_at": now}
        RecordFault.objects.create(**common, **times, uid=name, namespace=name)
    client = api_client(accountant) if address.startswith("/api") else browser(accountant)
    answer = client.get(f"{address}?namespace=team-a&format=csv")
    assert answer.status_code == 200
    lines = b"".join(answer).decode().splitlines()[1:]
    assert ["team-a" in line for line in lines] == [True]


@pytest.mark.usefixtures("october")
@pytest.mark.parametrize(
    "address", ["/api/v1/jobs?namespace=team-a", "/api/v1/partitions?namespace=team-a"]
)
def test_an_accountant_sees_no_more_of_jobs_than_anybody(accountant, alice, address: str):
    for user in (accountant, alice):
        assert api_client(user).get(address).status_code == 403


_WRITES = (
    ("/usage/rates/", {"resource": "cpu", "price": "1", "valid_from": "2030-01-01", "save": "yes"}),
    ("/usage/rates/1/end/", {"valid_until": "2030-01-01"}),
    ("/usage/reports/make/", {"month": "2026-10", "close": "yes"}),
    ("/usage/reports/range/", {"from": "2026-10-01"}),
    ("/api/v1/usage/rates", {"resource": "gpu", "price": "1", "valid_from": "2030-01-01"}),
    ("/api/v1/usage/rates/preview", {"resource": "gpu", "price": "1", "valid_from": "2030-01-01"}),
    ("/api/v1/usage/rates/1/end", {"valid_until": "2030-01-01"}),
    ("/api/v1/usage/reports/runs", {"from": "2026-10-01"}),
)


@pytest.mark.parametrize(("address", "body"), _WRITES)
def test_a_stranger_changes_nothing(alice, address: str, body: dict[str, str]):
    api = address.startswith("/api")
    kind = {"content_type": "application/json"} if api else {}
    assert (api_client(alice) if api else browser(alice)).post(
        address, body, **kind
    ).status_code == 403
    assert Client().post(address, body, **kind).status_code == (401 if api else 302)
    assert not Rate.objects.exists()
    assert not ReportRun.objects.exists()


@pytest.mark.usefixtures("october")
@pytest.mark.parametrize(
    "address",
    [
        "/usage/rates/",
        "/api/v1/usage/rates",
        "/api/v1/usage/reports/2026-10/corrections/1.csv",
        "/api/v1/usage/reports/2026-10/details.jsonl",
        "/api/v1/usage/reports/runs/1/file.csv",
    ],
)
def test_a_stranger_sees_nothing(alice, address: str):
    client = api_client(alice) if address.startswith("/api") else browser(alice)
    assert client.get(address).status_code == 403


def test_a_rate_is_set_and_ended_on_the_page_with_the_names_of_who_did_it(accountant, dora):
    client = browser(accountant)
    body = {"resource": "instance", "name": "<b>", "price": "1.25", "valid_from": "2026-01-01"}
    body["save"] = "yes"
    page = client.post("/usage/rates/", body, follow=True).content.decode()
    assert "&lt;b&gt;" in page
    assert "in force" in page
    stored = Rate.objects.get()
    browser(dora).post(f"/usage/rates/{stored.pk}/end/", {"valid_until": "2026-02-01"})
    stored.refresh_from_db()
    assert (str(stored.price), stored.created_by, stored.ended_by) == ("1.250000", "carol", "dora")
    again = client.post("/usage/rates/", {**body, "valid_from": "2026-01-15"})
    assert again.status_code == 400
    assert "Another rate of instance" in again.content.decode()


def test_a_rate_is_set_and_ended_by_the_api(accountant, dora):
    client = api_client(accountant)
    kind = "application/json"
    body = {"resource": "cpu", "price": "0.1", "valid_from": "2026-01-01"}
    made = client.post("/api/v1/usage/rates", body, content_type=kind)
    assert (made.status_code, made.json()["created_by"]) == (201, "carol")
    assert client.post("/api/v1/usage/rates", body, content_type=kind).status_code == 400
    place = f"/api/v1/usage/rates/{made.json()['id']}/end"
    early = client.post(place, {"valid_until": "2025-01-01"}, content_type=kind)
    assert "The rate begins on 2026-01-01" in early.json()["detail"]
    ended = api_client(dora).post(place, {"valid_until": "2026-03-01"}, content_type=kind).json()
    assert (ended["valid_until"], ended["ended_by"]) == ("2026-03-01", "dora")
    assert client.post(place, {}, content_type=kind).status_code == 400
    nowhere = f"/api/v1/usage/rates/{made.json()['id'] + 1}/end"
    unknown = client.post(nowhere, {"valid_until": "2026-03-01"}, content_type=kind)
    assert (unknown.status_code, "Rate not found" in unknown.json()["detail"]) == (404, True)


def test_an_accountant_asks_for_closing_and_for_a_range(accountant):
    client = api_client(accountant)
    last = at(f"{timezone.now():%Y-%m}-01T00:00")
    month = f"{last.replace(day=1) - (last - last.replace(day=1)):%Y-%m}"
    open_one = client.post(
        "/api/v1/usage/reports/runs",
        {"month": month, "close": True},
        content_type="application/json",
    )
    assert (open_one.status_code, "cannot be closed" in open_one.json()["detail"]) == (400, True)
    answer = client.post(
        "/api/v1/usage/reports/runs",
        {"from": "2026-10-01", "to": "2026-10-03", "kind": "details"},
        content_type="application/json",
    )
    assert answer.status_code == 202
    assert (answer.json()["end"], answer.json()["file"]) == ("2026-10-04T00:00:00Z", None)
    file = client.get(f"/api/v1/usage/reports/runs/{answer.json()['id']}/file.csv")
    assert file.status_code == 404
    assert "waiting for a worker" in file.json()["detail"]


@pytest.mark.parametrize("more", [{"month": "2026-09"}, {"close": True}])
def test_a_run_is_asked_for_a_month_or_for_a_range(accountant, more: dict[str, object]):
    body = {"from": "2026-10-01", "to": "2026-10-03", **more}
    answer = api_client(accountant).post("/api/v1/usage/reports/runs", body, "application/json")
    assert (answer.status_code, "either month, or from" in answer.json()["detail"]) == (400, True)
    assert not ReportRun.objects.exists()


@pytest.mark.usefixtures("october")
def test_the_file_of_a_range_is_downloaded_until_it_expires(accountant):
    run = _a_range()
    client = api_client(accountant)
    answer = client.get(f"/api/v1/usage/reports/runs/{run.pk}/file.csv")
    data = b"".join(answer)
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    assert (answer["Repr-Digest"], answer["X-IPUHub-Lines"]) == (f"sha-256=:{digest}:", "1")
    ReportRun.objects.update(expires_at=timezone.now())
    gone = client.get(f"/api/v1/usage/reports/runs/{run.pk}/file.csv")
    assert gone.status_code == 404
    assert "It has expired" in gone.json()["detail"]


@pytest.mark.usefixtures("october")
def test_headers_say_what_the_report_says_of_its_file(accountant):
    client = api_client(accountant)
    address = "/api/v1/usage/reports/2026-10/details.csv"
    answer = client.get(address)
    data = b"".join(answer)
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    assert answer["Repr-Digest"] == f"sha-256=:{digest}:"
    assert (answer["X-IPUHub-Version"], answer["X-IPUHub-State"]) == ("1", "closed")
    assert (answer["X-IPUHub-Lines"], answer["X-IPUHub-Corrections"]) == ("1", "0")
    assert answer["X-IPUHub-Complete-Until"] == "unknown"
    again = client.get(address, headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_details_streamed_from_the_rows_promise_neither_bytes_nor_lines(accountant, form: str):
    store_pod("2026-11-01T00:00", "2026-11-02T00:00")
    make("2026-11", "2026-11-20T00:00")
    client = api_client(accountant)
    address = f"/api/v1/usage/reports/2026-11/details.{form}"
    first = client.get(address)
    assert b"".join(first).count(b"\n") == (3 if form == "csv" else 1)
    tags = {first.get("ETag", ""), f'"2026-11.1.20261120000000.details.{form}"'}
    store_pod("2026-11-01T00:00", "2026-11-03T00:00")  # found late
    again = client.get(address, headers={"If-None-Match": ", ".join(filter(None, tags))})
    assert again.status_code == 200
    assert b"".join(again).count(b"\n") == (4 if form == "csv" else 2)
    for answer in (first, again):
        assert not {"ETag", "X-IPUHub-Lines", "Repr-Digest"} & set(answer.headers)
        assert answer["X-IPUHub-Version"] == "1"


def test_an_open_summary_is_the_same_until_it_is_made_anew(accountant):
    store_pod("2026-11-01T00:00", "2026-11-02T00:00")
    make("2026-11", "2026-11-20T00:00")
    client = api_client(accountant)
    address = "/api/v1/usage/reports/2026-11/summary.csv"
    first = client.get(address)
    before = b"".join(first)
    assert first["X-IPUHub-Lines"] == "1"
    store_pod("2026-11-01T00:00", "2026-11-03T00:00")
    known = {"If-None-Match": first["ETag"]}
    assert client.get(address, headers=known).status_code == 304
    make("2026-11", "2026-11-21T00:00")
    assert b"".join(client.get(address, headers=known)) != before


def test_excel_gets_a_mark_and_crlf_and_names_keep_their_line_ends(accountant):
    store_pod("2026-10-01T00:00", "2026-10-02T00:00", group='two\nlines "x"')
    make("2026-10", "2026-12-03T00:00")
    for query in ("?excel", "?excel&profile=primehub"):
        answer = api_client(accountant).get(f"/api/v1/usage/reports/2026-10/details.csv{query}")
        data = b"".join(answer)
        assert data.startswith(b"\xef\xbb\xbfreport_month,")
        assert b'"two\nlines ""x"""' in data
        assert data.count(b"\r\n") == (2 if "primehub" in query else 3)
        assert "Repr-Digest" not in answer
        plain = text_of("2026-10", "details", "primehub" if "primehub" in query else "default")
        assert data[3:].replace(b"\r\n", b"\n").decode() == plain


def test_a_correction_stands_on_the_page_and_in_the_api_with_its_file(accountant, october):
    from usage.reports.making import Order, correct_month
    from usage.time.windows import Month

    october.finished_at = at("2026-10-01T12:00")
    october.save()
    correct_month(Month(2026, 10), at("2026-12-04T00:00"), Order("daily"))
    page = browser(accountant).get("/usage/reports/").content.decode()
    assert "correction 1" in page
    assert "-6.00 EUR" in page
    (newest, _) = api_client(accountant).get("/api/v1/usage/reports").json()["results"]
    assert (newest["number"], newest["state"], newest["cost"]) == (1, "correction", "-6.00")
    file = b"".join(api_client(accountant).get(newest["files"]["correction"])).decode()
    assert "-12.00000" in file
    for number, message in ((2, "no correction with number 2"), (0, "numbered starting at 1")):
        missing = api_client(accountant).get(
            f"/api/v1/usage/reports/2026-10/corrections/{number}.csv"
        )
        missing.close()  # were it a file, it would hold its snapshot
        assert missing.status_code == 404
        assert message in missing.json()["detail"]


def test_make_user_makes_an_accountant(capsys):
    call_command("make_user", "erin", accountant=True)
    erin = get_user_model().objects.get(username="erin")
    assert browser(erin).get("/usage/reports/").status_code == 200
