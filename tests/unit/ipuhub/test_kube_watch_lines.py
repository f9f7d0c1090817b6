"""Lines and events of a watch's byte stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.kube.errors import Gone, ServerError
from ipuhub.kube.watch import decode_event, split_batches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def lines_of(chunks: list[bytes]) -> list[bytes]:
    async def feed() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [line async for lines in split_batches(feed()) for line in lines]


async def test_an_unfinished_last_line_is_dropped_and_blank_lines_mean_nothing() -> None:
    assert await lines_of([b"on", b"e\n\ntwo\nthr", b"ee"]) == [b"one", b"two"]


async def test_a_line_may_be_larger_than_any_buffer() -> None:
    piece = b"x" * 65_536
    assert await lines_of([piece] * 40 + [b"\n"]) == [piece * 40]


@given(st.lists(st.binary(min_size=1, max_size=8)), st.integers(1, 5))
async def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces: list[bytes], size: int) -> None:
    whole = b"".join(pieces) + b"\n"
    chunks = [whole[i : i + size] for i in range(0, len(whole), size)]
    assert await lines_of(chunks) == [line for line in whole.split(b"\n") if line]


def test_an_event_tells_where_to_continue() -> None:
    event = decode_event(b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}')
    assert (event.type, event.resource_version) == ("ADDED", "7")


def test_an_error_event_with_code_410_is_gone() -> None:
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}'
    with pytest.raises(Gone):
        decode_event(line)


@pytest.mark.parametrize(
    "line",
    [
        b"<html>",
        b"[]",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":{}}',
        b'{"type":"ERROR","object":{}}',
        b'{"type":"ADDED","object":{"metadata":{}}}',
    ],
)
def test_what_is_no_event_is_a_server_error_and_never_a_crash(line: bytes) -> None:
    with pytest.raises(ServerError):
        decode_event(line)
