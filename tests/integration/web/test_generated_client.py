"""A client generated from the OpenAPI document, against `run_web`: what a script of a user does."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from ipuhub.api.auth import make_token
from ipuhub.api.schema import openapi_text
from tests.builders import jobhistory
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.roles import grant
from tests.integration.usage.reading import make
from tests.integration.web.webprocess import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "ipuhub_generated_client"


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Calls an operation of the client, written like `usage.usage_summary`."""
    pytest.importorskip("openapi_python_client", reason="openapi-python-client is not installed")
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.yaml").write_text(openapi_text(), encoding="utf-8")
    (folder / "options.yaml").write_text("post_hooks: []\n", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate"]
    command += ["--path", "openapi.yaml", "--config", "options.yaml", "--meta", "none"]
    command += ["--output-path", NAME, "--fail-on-warning"]
    made = subprocess.run(
        command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr

    def sync(operation: str, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module(f"{NAME}.api.{operation}").sync(*args, **kwargs)

    sys.path.insert(0, str(folder))
    try:
        yield sync
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
            del sys.modules[name]


@pytest.fixture
def port() -> Iterator[int]:
    """A server with the record of two teams."""
    for number in range(5):
        began, ended = f"2026-10-0{number + 1}T00:00", f"2026-10-0{number + 2}T00:00"
        store_pod(began, ended, ipus=4, user="ann", pod_name=f"a-{number}")
    store_pod(
        "2026-10-03T00:00", "2026-10-04T00:00", namespace="team-b", group="team-b", user="bob"
    )
    store_partition("2026-10-01T00:00", "2026-10-02T00:00")
    jobhistory.jobs(3)
    jobhistory.jobs(1, "team-b")
    make("2026-10", "2026-11-03T00:00")
    with served() as port:
        yield port


@pytest.fixture
def as_user(port: int) -> Iterator[Callable[..., Any]]:
    """Makes a client with a token."""
    with ExitStack() as opened:

        def client_with(token: str) -> Any:
            kind = importlib.import_module(f"{NAME}.client").AuthenticatedClient
            address = f"http://127.0.0.1:{port}"
            return opened.enter_context(
                kind(base_url=address, token=token, raise_on_unexpected_status=True)
            )

        yield client_with


def token_of(name: str, *namespaces: str) -> str:
    """The token of a new user: of an administrator where no namespace is named."""
    user = get_user_model().objects.create_user(name, password="x", is_staff=not namespaces)
    for namespace in namespaces:
        grant(user, "operator", namespace)
    return make_token(user, "script", timezone.now())[1]


def models() -> Any:
    return importlib.import_module(f"{NAME}.models")


def pages(ask: Callable[..., Any]) -> Iterator[Any]:
    """Yield the rows of all pages, in pages of two."""
    cursor: dict[str, str] = {}
    while True:
        page = ask(page_size=2, **cursor)
        yield from page.results
        if page.next_ is None:
            return
        cursor = {"cursor": parse_qs(urlsplit(page.next_).query)["cursor"][0]}


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_it_lists_filters_and_turns_pages(
    call: Callable[..., Any], as_user: Callable[..., Any]
) -> None:
    root, alice = as_user(token_of("root")), as_user(token_of("alice", "team-a"))
    jobs = list(pages(lambda **page: call("jobs.jobs_list", client=root, **page)))
    assert len(jobs) == 4
    some = call(
        "jobs.jobs_list", client=root, namespace="team-b", status=models().JobsListStatus.COMPLETED
    )
    assert [job.namespace for job in some.results] == ["team-b"]
    assert len(list(pages(lambda **page: call("jobs.jobs_list", client=alice, **page)))) == 3
    one = call("jobs.jobs_read", some.results[0].uid, client=root)
    assert (one.name, one.uid) == (some.results[0].name, some.results[0].uid)

    query = {"client": root, "group": "team-a", "since": at("2026-10-02T00:00"), "running": False}
    pods = list(pages(lambda **page: call("usage.usage_lifetimes", **query, **page)))
    assert [each.pod_name for each in pods] == ["a-4", "a-3", "a-2", "a-1"]
    found = call("usage.usage_partitions", client=root, month="2026-10")
    assert [each.partition_ipu_hours for each in found.results] == ["96.00000"]

    sums = call("usage.usage_summary", client=root, month="2026-10", by="user", user=["ann", "x"])
    (row,) = sums.results
    assert row.key.additional_properties == {"user": "ann"}
    assert (row.ipu_hours, sums.total.ipu_hours, sums.next_) == ("480.00000", "480.00000", None)
    days = call("usage.usage_series", client=root, month="2026-10", by="user", user=["ann"])
    assert [each.ipu_hours for each in days.results] == ["96.00000"] * 5


ADDED_UP = ("partitions", "series", "capacity")
"""Files whose last line is of totals."""


def test_it_downloads_what_it_lists(call: Callable[..., Any], as_user: Callable[..., Any]) -> None:
    root, kinds = as_user(token_of("root")), models()
    whole = {"by": kinds.UsageCapacityFileBy.TOTAL, "step": kinds.UsageCapacityFileStep.ALL}
    for name, query, want in (
        ("lifetimes", {"group": "team-a"}, 5),
        ("partitions", {"month": "2026-10"}, 1),
        ("series", {"month": "2026-10", "by": "group", "group": ["team-b"]}, 1),
        ("gaps", {}, 0),
        ("faults", {}, 0),
        ("capacity", {"month": "2026-10", **whole}, 1),
    ):
        files = [
            call(f"usage.usage_{name}_file", form, client=root, **query)
            for form in ("csv", "jsonl")
        ]
        sums = [row for row in rows(files[0]) if next(iter(row.values())) == "total"]
        assert len(sums) == (name in ADDED_UP), name
        assert len(rows(files[0])) == want + len(sums), name
        assert len([json.loads(line) for line in files[1].splitlines()]) == want, name

    (report,) = call("usage.usage_reports_list", client=root).results
    month = ("2026-10", kinds.UsageReportsFileKind.SUMMARY, kinds.UsageReportsFileForm.CSV)
    plain = call("usage.usage_reports_file", *month, client=root, excel=False)
    assert (plain[0], plain.count("\r\n")) == ("r", 0)
    assert rows(plain)[-1]["report_month"] == "total"
    assert len(rows(plain)) == report.lines["summary"] + 1
    assert call("usage.usage_reports_file", *month, client=root, excel=True)[0] == "\ufeff"


def test_it_is_told_why_something_is_refused(
    call: Callable[..., Any], as_user: Callable[..., Any]
) -> None:
    alice, stranger = as_user(token_of("alice", "team-a")), as_user("ipuhub_wrong")
    for client, operation, query, status in (
        (stranger, "jobs.jobs_list", {}, 401),
        (alice, "jobs.jobs_list", {"namespace": "team-b"}, 403),
        (alice, "usage.usage_summary", {"month": "2026-13"}, 400),
        (alice, "usage.usage_reports_list", {}, 403),
    ):
        refusal = call(operation, client=client, **query)
        assert isinstance(refusal, models().Problem), operation
        assert (refusal.status, refusal.detail[-1]) == (status, ".")
    fleet = call("stats.stats", client=alice)
    assert (fleet.total, fleet.available) == (None, None)
    assert fleet.problem
