"""The history of PrimeHub Usage comes into our rows, once, and what is wrong with it is kept."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from ipuhub.models import RecordFault, WatchCheckpoint
from ipuhub.recording.store import connection_arguments
from tests.builders.lifetimes import at, store_pod
from tests.integration.usage.reading import make, rows_of
from usage.models import PodLifetime, PurgeState
from usage.time import months

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db
NOW = at("2026-11-21T12:00")
# The tables as PrimeHub Usage 1.1.0 makes them.
TABLES = """
CREATE TABLE primehub_usages (
  id serial PRIMARY KEY, uid varchar(36) NOT NULL, pod_name varchar(63) NOT NULL,
  group_name varchar(63) NOT NULL, user_name varchar(63) NOT NULL, component varchar(63) NOT NULL,
  component_name varchar(63) NOT NULL, instance_type varchar(63) NOT NULL, gpu numeric NOT NULL,
  cpu numeric NOT NULL, memory numeric NOT NULL, updated_time timestamp NOT NULL,
  scheduled_time timestamp, finished_time timestamp)"""
PEER = {
    "pod_name": "job-1",
    "group_name": "vision",
    "user_name": "ann",
    "component": "job",
    "component_name": "train",
    "instance_type": "gpu-2",
    "gpu": "2",
    "cpu": "1.5",
    "memory": "2147483648",
    "updated_time": "2026-10-05 04:00",
    "scheduled_time": "2026-10-05 01:00",
    "finished_time": "2026-10-05 04:00",
}


class Peer:
    """A database of PrimeHub Usage on the tests' server."""

    def __init__(self, server: dict[str, Any], name: str) -> None:
        arguments = {key: value for key, value in server.items() if key != "autocommit"}
        self.url = psycopg.conninfo.make_conninfo(**{**arguments, "dbname": name})
        self.own = psycopg.connect(self.url, autocommit=True)
        self.own.execute(TABLES)

    def add(self, uid: str = "", **columns: str | None) -> str:
        row = {**PEER, "uid": uid or str(uuid4()), **columns}
        names = ", ".join(row)
        values = ", ".join(f"%({name})s" for name in row)
        self.own.execute(f"INSERT INTO primehub_usages ({names}) VALUES ({values})", row)
        return str(row["uid"])


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    monkeypatch.setattr(months, "CLOCKS_DIFFER", timedelta.max)  # of the machine and of NOW
    server = connection_arguments(connection.settings_dict)
    name = f"primehub_{uuid4().hex[:8]}"
    with psycopg.connect(**{**server, "dbname": "postgres", "autocommit": True}) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        peer = Peer(server, name)
        yield peer
        peer.own.close()
        admin.execute(f"DROP DATABASE {name}")


def imported(peer: Peer, *options: str) -> str:
    out = StringIO()
    given = ("--from", peer.url, "--namespace", "hub", "--zone", "UTC", *options)
    call_command("import_primehub", *given, stdout=out)
    return out.getvalue()


def test_a_pod_arrives_with_all_that_was_known_of_it(peer: Peer) -> None:
    WatchCheckpoint.objects.create(name="pods", cluster_uid="cluster-1")
    uid = peer.add()
    output = imported(peer, "--zone", "Asia/Taipei")
    row = PodLifetime.objects.get(uid=uid)
    assert (row.scheduled_at, row.finished_at) == (at("2026-10-04T17:00"), at("2026-10-04T20:00"))
    assert (row.cpu_millicores, row.memory_bytes, row.gpus) == (1500, 2**31, 2)
    assert row.accelerators == {"nvidia.com/gpu": 2}
    assert (row.group, row.user, row.component, row.component_name) == (
        "vision", "ann", "job", "train",
    )  # fmt: skip
    assert (row.namespace, row.pod_name, row.instance_type) == ("hub", "job-1", "gpu-2")
    assert (row.claim, row.user_verified, row.cluster_uid) == ("annotation", False, "cluster-1")
    assert (row.estimated, row.skew_seconds) == (False, 0)
    assert "1 rows of 1 pods; times are Asia/Taipei." in output
    assert output.endswith("make_usage_reports --month 2026-10, then later months.\n")


@pytest.mark.django_db(transaction=True)
def test_its_hours_are_in_the_month_report(peer: Peer) -> None:
    peer.add()
    imported(peer)
    make("2026-10", "2026-11-03T00:00")
    (line,) = rows_of("2026-10", "summary", "primehub")
    assert (line["group"], line["usage_hours"]) == ("vision", "3.00000")
    assert (line["gpu_core_hours"], line["cpu_core_hours"]) == ("6.00000", "4.50000")


def test_a_dry_run_says_the_same_and_writes_nothing(peer: Peer) -> None:
    peer.add()
    peer.add(gpu="-1")
    output = imported(peer, "--dry-run")
    assert "2 pods would be imported" in output
    assert (PodLifetime.objects.count(), RecordFault.objects.count()) == (0, 0)
    imported_output = imported(peer)
    assert "2 pods were imported" in imported_output
    want = output.replace("would be", "were").splitlines()
    assert imported_output.splitlines()[:-1] == want
    assert PodLifetime.objects.count() == 2


def test_twice_is_once_and_what_is_recorded_stays(peer: Peer) -> None:
    peer.add()
    recorded = peer.add(scheduled_time="2026-10-07 00:00", finished_time="2026-10-09 00:00")
    store_pod("2026-10-07T00:00", "2026-10-07T05:00", uid=recorded)
    assert "1 pods were imported" in imported(peer)
    before = list(PodLifetime.objects.order_by("uid").values())
    output = imported(peer)
    assert "0 pods were imported" in output
    assert "2 pods are recorded already and stay as they are." in output
    assert list(PodLifetime.objects.order_by("uid").values()) == before
    assert PodLifetime.objects.get(uid=recorded).finished_at == at("2026-10-07T05:00")


def test_of_several_rows_of_a_pod_the_one_that_ended_last_counts(peer: Peer) -> None:
    uid = peer.add(finished_time=None)
    peer.add(uid, finished_time="2026-10-05 02:00")
    peer.add(uid, finished_time="2026-10-05 03:00")
    assert "1 pods have several rows" in imported(peer)
    assert PodLifetime.objects.get(uid=uid).finished_at == at("2026-10-05T03:00")
    fault = RecordFault.objects.get(uid=uid)
    assert (fault.code, fault.name, fault.namespace) == ("import-repeated", "job-1", "hub")
    assert fault.message.startswith("3 rows of this pod")


def test_without_an_end_it_ends_estimated_at_its_last_update(peer: Peer) -> None:
    uid = peer.add(finished_time=None, updated_time="2026-11-21 10:00")
    assert "1 have no end" in imported(peer)
    row = PodLifetime.objects.get(uid=uid)
    assert (row.finished_at, row.estimated) == (at("2026-11-21T10:00"), True)
    # The prober takes this source back if the pod is there after all.
    assert (row.end_source, row.uncertainty_seconds) == ("relist", 7200)


def test_times_that_contradict_each_other_make_no_negative_usage(peer: Peer) -> None:
    before = peer.add(scheduled_time="2026-10-05 04:00", finished_time="2026-10-05 02:00")
    ahead = peer.add(finished_time="2026-11-21 13:00")
    never = peer.add(scheduled_time=None)
    assert "1 were never scheduled" in imported(peer)
    found = {row.uid: row for row in PodLifetime.objects.all()}
    assert found[before].finished_at == found[before].scheduled_at == at("2026-10-05T04:00")
    assert found[before].skew_seconds == 7200
    assert (found[ahead].finished_at, found[ahead].skew_seconds) == (NOW, 3600)
    assert (found[never].scheduled_at, found[never].created_at) == (None, at("2026-10-05T04:00"))


@pytest.mark.parametrize("amount", ["-1", "NaN", "1e30"])
def test_an_amount_that_is_none_counts_as_nothing_and_is_kept(peer: Peer, amount: str) -> None:
    uid = peer.add(gpu=amount)
    assert "1 pods have an amount that is not a number" in imported(peer)
    row = PodLifetime.objects.get(uid=uid)
    assert (row.gpus, row.accelerators, row.cpu_millicores) == (0, {}, 1500)
    fault = RecordFault.objects.get(uid=uid)
    assert (fault.watch, fault.code) == ("primehub-import", "quantity")
    assert fault.message.startswith("gpu ")


@pytest.mark.parametrize(
    "columns",
    [{"uid": " "}, {"scheduled_time": "infinity"}, {"finished_time": "0044-03-15 00:00 BC"}],
)
def test_what_is_no_pod_is_left_out_and_kept_as_a_fault(peer: Peer, columns: Any) -> None:
    peer.add(**columns)
    good = peer.add()
    assert "1 pods left out: no UID, or a time that no pod can have." in imported(peer)
    assert [row.uid for row in PodLifetime.objects.all()] == [good]
    assert RecordFault.objects.get().code == "import-refused"


def test_a_component_of_our_own_is_a_claim_only(peer: Peer) -> None:
    uid = peer.add(component="ipujob")
    imported(peer)
    row = PodLifetime.objects.get(uid=uid)
    assert (row.component, row.claimed_component) == ("", "ipujob")


def test_what_was_purged_stays_away(peer: Peer) -> None:
    PurgeState.objects.create(purged_before="2026-10-06", zone="UTC", finished_at=NOW)
    peer.add()
    later = peer.add(finished_time="2026-10-06 01:00")
    assert "1 pods left out: they ended before the last purge." in imported(peer)
    assert [row.uid for row in PodLifetime.objects.all()] == [later]
    assert RecordFault.objects.get().code == "import-purged"


def test_more_pods_than_one_batch(peer: Peer) -> None:
    names = ", ".join(PEER)
    values = ", ".join(f"%({name})s" for name in PEER)
    peer.own.execute(
        f"INSERT INTO primehub_usages (uid, {names})"
        f" SELECT n::text, {values} FROM generate_series(1, 4500) AS n",
        PEER,
    )
    assert "4,500 pods were imported" in imported(peer)
    assert PodLifetime.objects.count() == 4500


def test_a_wrong_source_is_refused_in_words_that_hide_its_password(peer: Peer) -> None:
    refused = [
        (("--zone", "Mars/Olympus"), "does not know the time zone 'Mars/Olympus'"),
        (("--from", "not an address secret"), "not an address like postgresql://"),
        (("--from", "postgresql://u:secret@127.0.0.1:1/x"), "The source does not answer"),
        (("--namespace", ""), "Name the namespace"),
    ]
    for options, message in refused:
        with pytest.raises(CommandError, match=message) as error:
            imported(peer, *options)
        assert "secret" not in str(error.value)
    peer.own.execute("ALTER TABLE primehub_usages DROP COLUMN gpu")
    with pytest.raises(CommandError, match='not a database of PrimeHub Usage.*"gpu"'):
        imported(peer)
    peer.own.execute("DROP TABLE primehub_usages")
    with pytest.raises(CommandError, match="not a database of PrimeHub Usage"):
        imported(peer)


@pytest.mark.django_db(transaction=True)
def test_both_products_may_share_a_database(peer: Peer) -> None:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        names = ", ".join(PEER)
        values = ", ".join(f"%({name})s" for name in PEER)
        cursor.execute(f"INSERT INTO primehub_usages (uid, {names}) VALUES ('u', {values})", PEER)
    try:
        call_command("import_primehub", "--namespace", "hub", stdout=StringIO())
        assert PodLifetime.objects.get().uid == "u"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE primehub_usages")
