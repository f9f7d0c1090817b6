"""Bytes that are not valid HTTP, over real sockets: an error message, and never a traceback."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tests.fakes.leaving import leave_after

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import Site

QUERY = b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
PUT = (
    b"PUT /v1/partitions/uid-job/0 HTTP/1.1\r\nHost: x\r\n"
    b"Authorization: Bearer operator\r\nContent-Type: application/json\r\n"
)


async def say(site: Site, *pieces: bytes) -> bytes:
    """Send the pieces one by one; return all that comes back until the proxy hangs up."""
    host, port = site.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await asyncio.wait_for(reader.read(), 90)
    writer.close()
    return answer


def with_length(head: bytes, body: bytes, more: bytes = b"") -> bytes:
    close = b"Connection: close\r\n"
    return head + more + close + b"Content-Length: %d\r\n\r\n" % len(body) + body


CLOSE = b"Connection: close\r\n\r\n"
ODD = {
    "gzip that is none": with_length(QUERY, b"{}", b"Content-Encoding: gzip\r\n"),
    "deflate that is none": with_length(QUERY, b"\xff\xff", b"Content-Encoding: deflate\r\n"),
    "an unknown encoding": with_length(QUERY, b"{}", b"Content-Encoding: x\r\n"),
    "an unknown charset": with_length(
        b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=x\r\n", b"{"
    ),
    "half a surrogate pair": with_length(PUT, b'{"size":4,"name":"\\ud800","namespace":"a"}'),
    "not an object": with_length(PUT, b"[]"),
    "deep": with_length(PUT, b'{"a":' * 9_000),
    "a number without end": with_length(PUT, b'{"size":' + b"9" * 5000 + b"}"),
    "too long": with_length(PUT, b" " * 70_000),
    "too long for its type": with_length(QUERY, b'{"size":2' + b" " * 70_000 + b"}"),
    "a negative length": QUERY + b"Content-Length: -1\r\n\r\n",
    "a broken chunk": QUERY + b"Transfer-Encoding: chunked\r\n" + CLOSE + b"zz\r\n{}\r\n0\r\n\r\n",
    "a path of bytes": b"GET /v1/partitions/%ff%00/0 HTTP/1.1\r\nHost: x\r\n" + CLOSE,
    "a path out of the tree": b"GET /../../etc HTTP/1.1\r\nHost: x\r\n" + CLOSE,
    "a token of bytes": b"GET /v1/partitions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n"
    + CLOSE,
    "an ETag of bytes": b"GET /v1/partitions HTTP/1.1\r\nHost: x\r\nIf-None-Match: \xff\r\n"
    b"Authorization: Bearer operator\r\n" + CLOSE,
    "a method of its own": b"BREW /query HTTP/1.1\r\nHost: x\r\n" + CLOSE,
    "a wrong method": b"DELETE /stats HTTP/1.1\r\nHost: x\r\n" + CLOSE,
    "what it never answers": b"POST /query HTTP/1.1\r\nHost: x\r\nExpect: 200-maybe\r\n" + CLOSE,
    "malformed HTTP": b"\x16\x03\x01\0\0\r\n\r\n",
    "a header without end": b"GET /stats HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
}

NOT_ONE_REQUEST = {
    "a negative length": 400,
    "a broken chunk": 400,
    "a method of its own": 400,
    "malformed HTTP": 400,
    "a header without end": 400,
    "what it never answers": 417,
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_bytes_are_refused_in_words(
    site: Site, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as logged:
        answer = await say(site, ODD[name])
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert 200 <= status < 500
    assert not [line for line in logged if line["log_level"] == "error"]
    if name in NOT_ONE_REQUEST:  # aiohttp's own answer
        assert status == NOT_ONE_REQUEST[name]
        assert b"Content-Type: text/plain" in head
        assert body
    elif status >= 400:
        assert b"application/problem+json" in head
        assert json.loads(body)["detail"]
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_body_in_small_pieces_and_requests_in_a_row_are_answered(site: Site) -> None:
    whole = with_length(QUERY, b'{"size":2}')
    answer = await say(site, *(whole[n : n + 1] for n in range(len(whole))))
    assert answer.startswith(b"HTTP/1.1 200")
    bad = QUERY + b"Content-Length: 1\r\n\r\n["
    answer = await say(site, bad + bad + with_length(QUERY, b'{"size":2}'))
    assert [answer.count(b"HTTP/1.1 " + code) for code in (b"400", b"200")] == [2, 1]


@pytest.mark.parametrize(
    "sent",
    [
        PUT + b'Content-Length: 90\r\n\r\n{"si',
        QUERY + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        QUERY + b"Content-Length: 10\r\n\r\n{}",
    ],
    ids=["a reservation", "a chunk", "a query"],
)
async def test_who_leaves_in_the_middle_of_a_request_is_no_failure(
    site: Site, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as logged:
        await leave_after(site.url, sent)
        assert (await site.get("/health"))[0] == 200
    assert logged == []
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
