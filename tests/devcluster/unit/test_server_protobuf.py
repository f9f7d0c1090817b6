"""The protobuf bodies of kubectl's own commands."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.schemas.protobuf import MAGIC, UnreadableError, decode


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def envelope(kind: str, raw: bytes, api_version: str = "v1") -> bytes:
    head = field(1, api_version.encode()) + field(2, kind.encode())
    return MAGIC + field(1, head) + field(2, raw)


def test_a_config_map_is_read_with_its_maps() -> None:
    metadata = field(1, field(1, b"a") + field(11, field(1, b"k") + field(2, b"v")))
    data = field(2, field(1, b"x") + field(2, b"y"))
    binary = field(3, field(1, b"z") + field(2, b"\x00"))
    assert decode(envelope("ConfigMap", metadata + data + binary)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"k": "v"}},
        "data": {"x": "y"},
        "binaryData": {"z": "AA=="},
    }


def test_numbers_and_truths_are_read_negative_ones_too() -> None:
    minus_one = b"\xff" * 9 + b"\x01"
    raw = bytes([1 << 3]) + minus_one + bytes([3 << 3, 1]) + field(5, b"All")
    assert decode(envelope("DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": -1,
        "orphanDependents": True,
        "dryRun": ["All"],
    }


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnreadableError) as raised:
        decode(envelope("Job", b"", "batch/v1"))
    assert raised.value.kind == "Job"


def test_an_endless_number_is_refused() -> None:
    with pytest.raises(UnreadableError):
        decode(MAGIC + b"\xff" * 1_000_000)


@given(st.binary(max_size=200))
def test_nonsense_is_refused_and_never_a_crash(noise: bytes) -> None:
    for body in (noise, MAGIC + noise, envelope("ConfigMap", noise) if len(noise) < 100 else noise):
        with suppress(UnreadableError):
            assert isinstance(decode(body), dict)
