"""Polls of an unchanged reading read no rows and draw nothing, and no change is missed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from partitions.models import PartitionLifetime
from partitions.vipu.telemetry import Heartbeat
from tests.builders.fleetrows import partition_row
from tests.integration.dashboard.test_fleet_page import hold, hold_without_pods

if TYPE_CHECKING:
    from django.test import Client

    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db(transaction=True)
AG0 = "/fleet/machines/v1:8090/ag0/"
OF_ROWS = ("/fleet/", "/fleet/table/", AG0, f"{AG0}ipus/0/", "/system/")
QUEUE = ("/queue/", "/api/v1/queue")
_OF_SIGN_IN = 2  # the session and its user


def poll(client: Client, address: str, tag: str = "") -> Any:
    htmx = {} if address.startswith("/api/") else {"HX-Request": "true"}
    return client.get(address, headers=htmx | ({"If-None-Match": tag} if tag else {}))


def tags_of(client: Client, *addresses: str) -> dict[str, str]:
    return {address: poll(client, address)["ETag"] for address in addresses}


def changed(client: Client, tags: dict[str, str]) -> list[str]:
    """Return the addresses whose answers are no longer those with these tags."""
    found = [each for each, tag in tags.items() if poll(client, each, tag).status_code == 200]
    tags.update(tags_of(client, *found))
    return found


def test_an_unchanged_reading_is_known_and_each_change_is_seen(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    hold(cluster, proxy, "bert", "team-a", 4)
    row = partition_row("past", machines={"ag0": [0]}, reserved_at=clock.now())
    tags = tags_of(admin, *OF_ROWS, *QUEUE)
    clock.later(3)  # the cluster and the proxy are read again
    for address, tag in tags.items():
        with CaptureQueriesContext(connection) as queries:
            answer = poll(admin, address, tag)
            query_count = len(queries.captured_queries)
        assert (answer.status_code, answer["ETag"]) == (304, tag)
        assert answer["X-As-Of"] == poll(admin, address)["X-As-Of"]
        assert query_count == _OF_SIGN_IN + (address in OF_ROWS), address
    PartitionLifetime.objects.filter(pk=row.pk).update(released_at=clock.now())
    assert changed(admin, tags) == [AG0, f"{AG0}ipus/0/", "/system/"]
    proxy.world.vipu.heartbeats["ag0"] = Heartbeat(clock.now() - dt.timedelta(seconds=5), {})
    assert changed(admin, tags) == [AG0, f"{AG0}ipus/0/"]
    proxy.hold("waits", "team-a", 64)
    clock.later(3)
    assert changed(admin, tags) == ["/fleet/", *QUEUE]
    proxy.stop()
    clock.later(3)
    assert set(changed(admin, tags)) == {*OF_ROWS, *QUEUE}


def test_a_partition_becomes_idle_in_time(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    hold_without_pods(cluster, proxy, clock)
    clock.later(57)
    tags = tags_of(admin, "/fleet/", "/fleet/table/", AG0)
    assert changed(admin, tags) == []
    clock.later(4)
    assert changed(admin, tags) == ["/fleet/", "/fleet/table/", AG0]
