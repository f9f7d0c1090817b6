"""PrimeHub Usage's faults in how its files are made and served, and how ours are."""

from __future__ import annotations

import csv
import io
import json
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from ipuhub.text import plain_text
from tests.builders.clients import api_client
from tests.builders.lifetimes import at, store_pod
from tests.builders.manylifetimes import many_stored, store_many
from tests.fakes.meter import spans, usage
from usage.models import MonthReport
from usage.reports.columns import PRIMEHUB
from usage.reports.monthly import Range, details_sql, rows_sql

if TYPE_CHECKING:
    from tests.fakes.meter import Meter
    from tests.integration.usage.peerfaults.conftest import Accountant

FIRST, END = at("2026-10-01T00:00"), at("2026-11-01T00:00")
_STATUS = Path("/proc/self/status")


def _memory_kb(name: str) -> int:
    (line,) = [one for one in _STATUS.read_text().splitlines() if one.startswith(name)]
    return int(line.split()[1])


def test_16_a_large_file_leaves_at_once_and_in_little_memory(accountant: Accountant) -> None:
    """There, the whole file is built in memory: 1,340 MiB for 520,000 lines, then OOM-killed."""
    with connection.cursor() as cursor:
        store_many(cursor, 60_000, FIRST, END)
    accountant.make()
    with closing(accountant.file("details")) as answer:
        blocks = iter(answer)
        assert next(blocks).startswith(b"report_month,")
        next(blocks)
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = _memory_kb("VmRSS")
        size = sum(len(block) for block in blocks)
        grew = _memory_kb("VmHWM") - before
    assert size > 14 * 2**20
    assert grew < 4 * 2**10, f"{grew} kB more for a file of {size // 1024} kB"


def test_17_every_download_during_the_making_of_reports_is_whole(accountant: Accountant) -> None:
    """There, tables are dropped under their readers: six of ten downloads failed."""
    store_pod("2026-10-01T00:00", "2026-10-01T01:00")
    accountant.make()
    stop, seen, wrong = Event(), [], []
    user = get_user_model().objects.get(username="ann")

    def read(client: Any, kind: str) -> None:
        try:
            while not stop.is_set():
                answer = client.get(f"/api/v1/usage/reports/2026-10/{kind}.csv")
                text = answer.getvalue().decode()
                answer.close()
                rows = list(csv.DictReader(io.StringIO(text)))
                assert rows.pop()["report_month"] == "total"
                hours = {float(row["usage_hours"]) for row in rows}
                count = sum(int(row.get("pods", 1)) for row in rows)
                if answer.status_code != 200 or not count or (kind == "details" and hours != {1.0}):
                    wrong.append((answer.status_code, text))
                seen.append(count)
        except Exception as error:  # noqa: BLE001  # told to the test's own thread
            wrong.append(error)
        finally:
            connections.close_all()

    readers = [
        Thread(target=read, args=(api_client(user), kind)) for kind in ("details", "summary") * 2
    ]
    for reader in readers:
        reader.start()
    for number in range(12):
        store_pod("2026-10-02T00:00", "2026-10-02T01:00", component_name=f"more-{number}")
        accountant.make()
    stop.set()
    for reader in readers:
        reader.join(60)
    assert wrong == []
    assert set(seen) <= set(range(1, 14))
    assert MonthReport.objects.get().version == 13


def _nodes(cursor: Any, query: str, parameters: Any) -> list[dict[str, Any]]:
    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", parameters)
    (plan,) = cursor.fetchone()
    waiting, found = [(json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]], []
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].get("Plans", ())
    return found


@pytest.mark.django_db
def test_18_a_month_reads_its_own_pods_and_not_all_there_ever_were() -> None:
    """There, each run reads all history twice a day and sorts it on disk."""
    pods = 48_000
    covers = Range("2026-03", "UTC", at("2026-03-01T00:00"), at("2026-04-01T00:00"), END)
    with many_stored(pods, at("2024-11-01T00:00"), at("2026-11-01T00:00")) as cursor:
        for query in (rows_sql, partial(details_sql, PRIMEHUB)):
            nodes = _nodes(cursor, query(covers), covers.parameters)
            scans = [node for node in nodes if node.get("Relation Name") == "usage_podlifetime"]
            read = sum(
                node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
                for node in scans
            )
            assert {node["Node Type"] for node in scans}.isdisjoint(
                {"Seq Scan", "Parallel Seq Scan"}
            )
            assert read < pods / 24 * 1.5
            assert "Disk" not in {node.get("Sort Space Type") for node in nodes}


def test_18_lines_of_a_summary_are_not_stored_one_by_one(accountant: Accountant) -> None:
    """There, each line is an INSERT of its own."""
    for number in range(50):
        store_pod("2026-10-01T00:00", "2026-10-01T01:00", group=f"group-{number}")
    with CaptureQueriesContext(connection) as queries:
        accountant.make()
    assert len([one for one in queries if "usage_reportrow" in one["sql"]]) < 5
    assert len(accountant.rows("summary")) == 50


@pytest.mark.embedded_only
def test_19_names_keep_their_columns_and_run_in_no_spreadsheet(
    meter: Meter, accountant: Accountant
) -> None:
    """There, `a,b` moves all columns after it, `=1+1` is a formula, and the file is text/html."""
    stamp = usage(group="a,b", user="=1+1", component_name='say "x"\nand go')
    meter.pod("named", spans("2026-10-01T00:00:00Z", "2026-10-01T01:00:00Z"), stamp=stamp)
    with meter.probing():
        pass
    accountant.make()
    for profile in ("default", "primehub"):
        (row,) = accountant.rows("details", profile=profile)
        assert (row["group"], row["pod_name"]) == ("a,b", "named")
        assert (row["user"], plain_text(row["user"])) == ("'=1+1", "=1+1")
        assert row["component_name"] == 'say "x"\nand go'
        with closing(accountant.file("summary", profile=profile)) as answer:
            assert answer["Content-Type"] == "text/csv; charset=utf-8"
            assert answer["Content-Disposition"].startswith('attachment; filename="')
