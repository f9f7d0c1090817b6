"""The common form of all answers of /api/v1/, for each route and method of the URL table.

A new route is tried without being listed. Parameters that nothing reads, ETags and refused bodies
are tried by the modules beside this one.
"""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.db.models import Max
from django.utils import timezone

from ipuhub.api.idempotency import SECRETS
from ipuhub.api.views import FileList
from ipuhub.models import ApiToken, Subscription
from ipuhub.text import safe_cell
from jobs.models import JobEvent, JobRecord
from tests.builders.apiroutes import (
    answer_schema,
    api_routes,
    example_body,
    undescribed,
    values_in,
)
from tests.builders.clients import api_client
from tests.builders.everypage import rows_of_administration
from tests.builders.rates import store_rate
from usage.models import Rate, ReportRun
from usage.time.months import usage_zone
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from django.http import HttpResponse
    from django.test import Client
    from pytest_django import DjangoDbBlocker

    from tests.builders.apiroutes import (
        Route,
    )

pytestmark = pytest.mark.django_db
ROUTES: Final = {f"{each.path}": each for each in api_routes()}
READS: Final = {path: each for path, each in ROUTES.items() if "get" in each.methods}
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
AWAY: Final = {"job-logs", "usage-api:correction-file", "usage-api:run-file"}
"""Reads of what is not there: a cluster, a month's correction, the file of a run."""
INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
LIKE_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class World(NamedTuple):
    """A filled installation: an administrator's client, and values of the addresses' arguments."""

    client: Client
    known: dict[str, Any]

    def get(self, route: Route, query: str = "", **headers: str) -> HttpResponse:
        """Return the answer to a GET with what the route requires."""
        needed = route.query()
        joined = f"{needed}{'&' if needed else '?'}{query}" if query else needed
        return self.client.get(route.address(self.known) + joined, headers=headers)


@pytest.fixture(scope="module")
def world(people: dict[str, User], django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Some rows of each list, of one administrator."""
    admin = people["admin"]
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(django_settings, "SECURE_SSL_REDIRECT", False)
        patched.setattr(django_settings, "API_REQUESTS_PER_MINUTE", 1_000_000)
        Rate.objects.all().delete()  # the same is set below
        rows_of_administration(admin, 3)
        Rate.objects.all().delete()
        store_rate("cpu", "1")
        get_user_model().objects.create_user("ann")  # as the document's examples have it
        job = JobRecord.objects.get(uid="uid-team-a-train")
        for number in range(3):
            times = {"first_at": job.created_at, "last_at": job.created_at}
            JobEvent.objects.create(job=job, uid=f"e-{number}", message=f"Pulled {number}", **times)
        known = {
            "uid": job.uid,
            "month": str(Month.of(timezone.now(), usage_zone()).previous()),
            "token": ApiToken.objects.aggregate(Max("pk"))["pk__max"],
            "rate": Rate.objects.aggregate(Max("pk"))["pk__max"],
            "run": ReportRun.objects.aggregate(Max("pk"))["pk__max"],
            "subscription": Subscription.objects.aggregate(Max("pk"))["pk__max"],
        }
        now = timezone.now()  # rows that count up to now are others a second later
        patched.setattr(timezone, "now", lambda: now)
        yield World(api_client(admin), known)


@pytest.fixture(scope="module")
def reads(world: World, django_db_blocker: DjangoDbBlocker) -> dict[str, Any]:
    """The answer to each read, by path."""
    found = {}
    with django_db_blocker.unblock():
        for path, route in READS.items():
            answer: Any = world.get(route)
            answer.text_of = text_of(answer)
            found[path] = answer
            assert answer.status_code == 200 or route.name in AWAY, (path, answer.text_of)
    return found


@pytest.fixture(scope="module")
def answers(reads: dict[str, Any]) -> dict[str, Any]:
    """The answer to each described read of JSON, by path."""
    operations = {path: READS[path].described("get") for path in reads}
    return {
        path: reads[path].json()
        for path, operation in operations.items()
        if operation and reads[path].status_code == 200 and answer_schema(operation)
    }


def text_of(answer: Any) -> str:
    return (b"".join(answer) if answer.streaming else answer.content).decode()


def check_problem(answer: Any, status: int) -> dict[str, Any]:
    """Return the problem document of an answer."""
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM), answer.content
    assert problem["status"] == status
    assert problem["type"].startswith("urn:ipuhub:problem:")
    assert problem["title"]
    assert problem["detail"].endswith((".", ".'")), problem
    return problem


def check_limit(answer: Any) -> None:
    """The answer says the rest of the rate limit."""
    assert answer["RateLimit"].startswith('"minute";r=')
    assert answer["RateLimit-Policy"] == '"minute";q=1000000;w=60'


def test_each_route_says_its_methods_and_refuses_others_and_callers_without_a_token(
    world: World, client: Client
) -> None:
    for turn, (path, route) in enumerate(ROUTES.items()):
        address, methods = route.address(world.known), route.methods
        safe = {"GET", "HEAD"} if "get" in methods else set()
        allowed = {*map(str.upper, methods), *safe, "OPTIONS"}
        options = world.client.options(address)
        assert options.status_code == 200, path
        assert set(options["Allow"].split(", ")) == allowed, path
        others = sorted({"get", "post", "put", "patch", "delete"} - set(methods))
        refused = getattr(world.client, others[turn % len(others)])(address)
        check_problem(refused, 405)
        check_limit(refused)
        assert set(refused["Allow"].split(", ")) == allowed, path
        check_problem(getattr(client, methods[0])(address), 401)


def test_head_answers_as_get_without_a_body(world: World, reads: dict[str, Any]) -> None:
    for path, route in READS.items():
        got = reads[path]
        check_limit(got)
        head = world.client.head(route.address(world.known) + route.query())
        assert (text_of(head), head.status_code) == ("", got.status_code), path
        same = {"Content-Type", "Content-Disposition", "ETag", "RateLimit", "X-As-Of", "Vary"}
        assert same & set(head.headers) == same & set(got.headers), path
        if "ETag" in head and head["ETag"] == got["ETag"] and head.status_code == 200:
            tag = {"If-None-Match": head["ETag"]}
            again = world.client.head(route.address(world.known) + route.query(), headers=tag)
            assert again.status_code == 304, path


def parameters(route: Route) -> list[dict[str, Any]]:
    operation = route.described("get") or {}
    return [each for each in operation.get("parameters", ()) if each["in"] == "query"]


def is_narrow(parameter: dict[str, Any]) -> bool:
    """Return whether only some texts are values."""
    schema = parameter["schema"]
    return schema["type"] in {"integer", "boolean"} or bool({"enum", "format"} & set(schema))


def test_a_bad_value_is_refused_by_its_field_with_what_to_do(world: World) -> None:
    tried, bare = 0, []
    for path, route in READS.items():
        if path.endswith("{form}"):
            continue  # the view of the JSON reads the same
        for parameter in parameters(route):
            name = parameter["name"]
            answer = world.client.get(f"{route.address(world.known)}?{name}=%5B%C2%B2")
            if answer.status_code == 200:
                text_of(answer)
                assert not is_narrow(parameter), (path, name)
                continue
            problem = check_problem(answer, answer.status_code)
            check_limit(answer)
            if answer.status_code != 400:
                continue
            tried += 1
            assert list(problem["errors"]) == [name], (path, problem)
            sentence = problem["errors"][name][0]
            assert problem["detail"] == f"{name}: {sentence}", path
            bare += [] if re.search(REMEDIES, sentence) else [(path, name, sentence)]
    assert bare == []
    assert tried > 90


REMEDIES: Final = r"must be|is not one of|Use |Valid |Start again|Leave "


def lists() -> dict[str, Route]:
    """The reads whose answer is a list in pages, and all others that have files."""
    return {
        path: route
        for path, route in READS.items()
        if f"{path}.{{form}}" in ROUTES or "cursor" in {each["name"] for each in parameters(route)}
    }


def test_what_has_pages_has_one_envelope_and_shows_each_row_once(
    world: World, answers: dict[str, Any]
) -> None:
    seen = set()
    for path, body in answers.items():
        names = {each["name"] for each in parameters(ROUTES[path])}
        is_paged = "cursor" in names
        assert ("next" in body, "page_size" in names) == (is_paged, is_paged), path
        assert "results" in body or f"{path}.{{form}}" not in ROUTES, path
        if not is_paged:
            continue
        assert body["next"] is None, path
        size = max(1, len(body["results"]) // 3)
        paged: list[Any] = []
        address: str | None = f"{ROUTES[path].address(world.known)}?page_size={size}"
        while address:
            page = world.client.get(address).json()
            assert len(page["results"]) <= size, path
            paged += page["results"]
            address = page["next"]
            assert address is None or f"page_size={size}" in address, path
        assert len(paged) == len(body["results"]), path
        assert [row for number, row in enumerate(paged) if row in paged[:number]] == [], path
        seen |= {path} if len(paged) > 1 else set()
    assert len(seen) > 12, seen


def test_each_list_has_files_with_the_same_rows_and_fields(
    world: World, answers: dict[str, Any]
) -> None:
    for path, route in lists().items():
        file = ROUTES[f"{path}.{{form}}"]
        texts = {}
        for form, kind in (("csv", "text/csv"), ("jsonl", "application/x-ndjson")):
            named = world.client.get(file.address({**world.known, "form": form}) + route.query())
            texts[form] = text_of(named)
            assert (named.status_code, named["Content-Type"]) == (200, kind), path
            assert named["Content-Disposition"].endswith(f'.{form}"'), path
            other: Any = world.get(route, Accept=kind)
            assert text_of(other).count("\n") == texts[form].count("\n"), (path, form)
            assert other["Content-Disposition"] == named["Content-Disposition"], path
        body = world.get(route).json() if issubclass(route.view, FileList) else answers[path]
        check_files(path, body, texts["csv"], texts["jsonl"])


def check_files(path: str, body: Any, table: str, lines: str) -> None:
    """Files of a list in pages have its rows and fields; files of sums are flat."""
    rows, total = body["results"], ""
    records = [json.loads(line) for line in lines.splitlines()]
    cells = list(csv.DictReader(table.splitlines()))
    if cells and "total" in cells[-1].values():
        total = cells.pop()
    assert (len(records), len(cells)) == (len(rows), len(rows)), (path, total)
    if not issubclass(ROUTES[path].view, FileList):
        return
    assert records == rows, path
    for row, record, cell in zip(rows, records, cells, strict=True):
        assert set(row) == set(record), path
        flat = {name for name, value in row.items() if not isinstance(value, dict | list)}
        assert flat - {"file"} <= set(cell), path  # a file names no address of another
        for name in flat & set(cell):
            text = "" if row[name] is None else str(row[name])  # amounts are numbers there
            assert cell[name] in {text, safe_cell(text)}, (path, name, cell[name], text)


def test_each_field_is_described_and_each_described_field_is_there(
    answers: dict[str, Any],
) -> None:
    wrong = set()
    for path, body in answers.items():
        wrong |= undescribed(body, answer_schema(ROUTES[path].described("get") or {}), path)
    assert wrong == set()


def test_each_write_that_changes_something_answers_a_key_the_same_twice(world: World) -> None:
    keyless, done = set(), set()
    for path, route in sorted(ROUTES.items(), key=lambda each: "delete" in each[1].methods):
        for method in route.methods:
            operation = route.described(method)
            if method == "get" or operation is None:
                continue
            taken = {each["name"] for each in operation.get("parameters", ())}
            assert ("Idempotency-Key" in taken) is route.takes_key(method), path
            keyless |= set() if route.takes_key(method) else {route.name}
            address, body = route.address(world.known), example_body(operation)
            headers = {"Idempotency-Key": f"{method} {path}"}
            call = getattr(world.client, method)
            first, again = (call(address, body, JSON, headers=headers) for _ in range(2))
            assert first.status_code == again.status_code, path
            if first.status_code >= 400:
                assert first.json() == check_problem(again, first.status_code)
                continue
            done.add(f"{method} {path}")
            is_repeated = "Idempotent-Replayed" in again.headers
            assert is_repeated is route.takes_key(method), path
            if text_of(first):
                schema = answer_schema(operation, first.status_code)
                assert undescribed(first.json(), schema, path) == set()
                hidden = {name: None for name in SECRETS if name in first.json()}
                assert again.json() == first.json() | hidden, path
    assert keyless == {"partitions-api:query", "usage-api:rate-preview"}
    assert len(done) >= 12, done


def test_times_names_and_links_have_one_form(world: World, answers: dict[str, Any]) -> None:
    wrong, links = set(), set()
    for path, body in answers.items():
        schema = answer_schema(ROUTES[path].described("get") or {})
        for where, value, found in values_in(body, schema, path):
            named = found.get("properties", {}) if isinstance(value, dict) else {}
            wrong |= {f"{where}.{name}" for name in named if not NAME.fullmatch(name)}
            if not isinstance(value, str) or "type" not in found:
                continue
            kind = found.get("format", "")
            is_time, is_link = LIKE_INSTANT.match(value), value.startswith(("http:", "https:", "/"))
            links |= {value} if is_link else set()
            if is_time or kind == "date-time":
                is_right = kind == "date-time" and INSTANT.fullmatch(value)
                wrong |= set() if is_right else {f"{where}: {value} ({kind})"}
            elif is_link and kind != "uri" and not where.endswith(".target"):
                wrong.add(f"{where}: {value} ({kind})")
    assert wrong == set()
    ours = {link for link in links if urlsplit(link).netloc == "testserver"}
    assert ours
    for address in ours:
        answer = world.client.get(address)
        assert (answer.status_code, text_of(answer) != "") == (200, True), address


def test_ids_lead_to_their_objects(world: World, answers: dict[str, Any]) -> None:
    followed = set()
    for path, body in answers.items():
        for one in READS:
            name = re.fullmatch(rf"{re.escape(path)}/{{(\w+)}}", one)
            for row in body["results"] if name else ():
                address = f"{path}/{row[name[1]]}"  # type: ignore[index]  # there is no row without
                assert world.client.get(address).status_code == 200, address
                followed.add(one)
    assert len(followed) >= 4
