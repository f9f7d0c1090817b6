"""The controller that an agent obeys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.agent.holder import (
    HELD_FOR,
    Holder,
    RefusedHosts,
    Rival,
    next_holder,
    rival_of,
)
from partitions.vipu.errors import NotReady
from partitions.vipu.server.agents.links import controller_id_in

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
FIRST = Holder("first", NOW)


def test_an_agent_obeys_one_controller_until_that_calls_no_longer() -> None:
    assert next_holder(None, "first", NOW, takes_over=False) == FIRST
    soon, later = NOW + timedelta(seconds=1), NOW + HELD_FOR
    assert next_holder(FIRST, "first", soon, takes_over=False) == Holder("first", soon)
    assert next_holder(FIRST, "", soon, takes_over=False) == FIRST
    with pytest.raises(NotReady, match="stop one of the two"):
        next_holder(FIRST, "second", soon, takes_over=False)
    assert next_holder(FIRST, "second", soon, takes_over=True) == Holder("second", soon)
    assert next_holder(FIRST, "second", later, takes_over=False) == Holder("second", later)


@pytest.mark.parametrize(
    ("peer", "want"),
    [
        ("ipv4:10.0.0.1:53422", "10.0.0.1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:53422", "fe80::1%eth0"),
        ("unix:", "unix:"),
    ],
)
def test_a_rival_is_named_by_the_host_that_it_calls_from(peer: str, want: str) -> None:
    assert rival_of("second", peer) == Rival("second", want)


@pytest.mark.parametrize("before", [None, b"", b"\xff\x00", b"a" * 31])
def test_a_controller_has_one_id_for_all_its_processes(
    tmp_path: Path, before: bytes | None
) -> None:
    lock = tmp_path / "state.json.lock"
    if before is not None:
        lock.write_bytes(before)
    made = controller_id_in(lock)
    assert controller_id_in(lock) == made
    assert len(made) == 32
    assert controller_id_in(tmp_path / "another") != made


def test_a_host_is_told_of_once_and_eight_are_told_of_until_all_is_quiet() -> None:
    hosts = RefusedHosts()
    assert [hosts.is_new("10.0.0.1") for _ in range(3)] == [True, False, False]
    assert sum(hosts.is_new(f"10.0.1.{number}") for number in range(100)) == 7
    hosts.forget()
    assert hosts.is_new("10.0.0.1")
