"""The parts of a recording without a server: resume position, buffer, faults."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from ipuhub.kube.errors import Gone, ServerError
from ipuhub.recording.buffer import Batch, Buffer
from ipuhub.recording.reading import Decoder
from ipuhub.recording.recorder import storable
from ipuhub.recording.shapes import Checkpoint, reason_to_list
from ipuhub.recording.store import connection_arguments
from usage.pods.resources import Pod

NOW = datetime(2026, 10, 1, tzinfo=UTC)
KNOWN = Checkpoint(3, "cluster", "100", "all", NOW)


@pytest.mark.parametrize(
    ("checkpoint", "cluster", "revision", "selection", "want"),
    [
        (KNOWN, "cluster", "100", "all", ""),
        (KNOWN, "cluster", "1000", "all", ""),
        (KNOWN, "cluster", "99", "all", "behind"),
        (KNOWN, "cluster", "", "all", "behind"),
        (KNOWN, "cluster", "not-a-number", "all", "behind"),
        (KNOWN, "other", "1000", "all", "another cluster"),
        (KNOWN, "cluster", "1000", "some", "selection"),
        (Checkpoint(1), "cluster", "1000", "all", "nothing was recorded"),
    ],
)
def test_when_a_watch_can_go_on(
    checkpoint: Checkpoint, cluster: str, revision: str, selection: str, want: str
) -> None:
    reason = reason_to_list(checkpoint, cluster, revision, selection)
    assert want in reason
    assert bool(want) == bool(reason)


def batch(version: int, events: int) -> Batch[int]:
    return Batch(str(version), NOW, [version], events=events)


async def test_a_full_buffer_stops_its_reader_until_the_writer_takes() -> None:
    buffer: Buffer[int] = Buffer(limit=10, batch_events=5, batch_seconds=60)
    await buffer.add(batch(1, 6))
    await buffer.add(batch(2, 6))
    third = asyncio.create_task(buffer.add(batch(3, 1)))
    await asyncio.sleep(0)
    assert not third.done()
    taken = await buffer.take()
    assert taken is not None
    assert (taken.rows, taken.events, taken.resource_version) == ([1, 2], 12, "2")
    await third
    buffer.close()
    last = await buffer.take()
    assert last is not None
    assert last.rows == [3]
    assert await buffer.take() is None


async def test_after_a_quiet_time_a_change_is_taken_at_once() -> None:
    buffer: Buffer[int] = Buffer(limit=10, batch_events=5, batch_seconds=60)
    await buffer.add(batch(1, 1))
    async with asyncio.timeout(30):
        assert await buffer.take() is not None


def test_a_bookmark_an_error_and_a_broken_object_are_told_apart() -> None:
    decoder = Decoder(Pod)
    bookmark = (
        b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7",'
        b'"creationTimestamp":null},"spec":{"containers":null},"status":{}}}'
    )
    assert decoder.line(bookmark)[:4] == ("BOOKMARK", None, None, "7")
    broken = b'{"type":"ADDED","object":{"metadata":{"uid":"u","resourceVersion":"8","labels":7}}}'
    change = decoder.line(broken)
    assert (change.manifest, change.resource_version) == (None, "8")
    assert change.fault is not None
    assert change.fault.subject.uid == "u"
    with pytest.raises(Gone):
        decoder.line(b'{"type":"ERROR","object":{"kind":"Status","code":410,"metadata":{}}}')
    for line in (b"<html>", b'{"type":"ADDED","object":{}}', b"[]"):
        with pytest.raises(ServerError):
            decoder.line(line)


def test_an_answer_that_is_no_list_is_never_an_empty_one() -> None:
    for answer in (b"{}", b"[]", b'{"kind":"Status","metadata":{}}'):
        with pytest.raises(ServerError):
            Decoder(dict).page(answer)


def test_text_becomes_what_postgres_takes() -> None:
    assert storable("a\0b\ud800c") == "a\ufffdb?c"


def test_djangos_own_options_are_not_given_to_psycopg() -> None:
    database = {"NAME": "n", "HOST": "", "OPTIONS": {"sslmode": "require", "pool": True}}
    found = connection_arguments(database)
    assert (found["dbname"], found["sslmode"]) == ("n", "require")
    assert {"pool", "host"}.isdisjoint(found)
