"""Announcements of agents are kept for a minute, and all other packets are dropped."""

from __future__ import annotations

import pytest

from partitions.vipu.discovery import (
    FORGOTTEN_SECONDS,
    MOST_KEPT,
    Announcement,
    Discovery,
    announcement,
    read_announcement,
)

ODD = [
    *(b"", b"\xff", b"{}", b"[]", b"[" * 500, b'{"format": "ipuhub-vipu-agent"}'),
    announcement("", 1),
    announcement("a" * 64, 1),
    announcement("a\x1b[2J", 1),
    announcement("a", 0),
    announcement("a", 65536),
    announcement("a", 7).replace(b"7", b"true"),
    announcement("a", 7).replace(b"vipu", b"other"),
]


@pytest.mark.parametrize("data", ODD)
def test_nonsense_is_no_announcement(data: bytes) -> None:
    assert read_announcement(data, "10.0.0.1", "eth0", 0.0) is None


def test_an_agent_is_forgotten_a_minute_after_its_last_word() -> None:
    now = [0.0]
    discovery = Discovery([], lambda: now[0])
    first = read_announcement(announcement("ag0", 8080), "10.0.0.1", "eth0", 0.0)
    assert first == Announcement("ag0", "10.0.0.1", 8080, "eth0", 0.0)
    discovery.hear(first)
    now[0] = 10.0
    again = Announcement("ag0", "10.0.0.1", 8080, "eth0", 10.0)
    discovery.hear(again)
    now[0] += FORGOTTEN_SECONDS
    assert discovery.agents() == [(again, FORGOTTEN_SECONDS)]
    now[0] += 0.1
    assert discovery.agents() == []


def test_of_too_many_agents_the_one_heard_longest_ago_is_dropped() -> None:
    discovery = Discovery([], lambda: 0.0)
    for number in range(MOST_KEPT):
        discovery.hear(Announcement("a", "10.0.0.1", number + 1, "eth0", 0.0))
    discovery.hear(Announcement("a", "10.0.0.1", 1, "eth0", 0.0))  # again
    discovery.hear(Announcement("new", "10.0.0.2", 1, "eth0", 0.0))
    kept = {(one.host, one.port) for one, _ in discovery.agents()}
    assert len(kept) == MOST_KEPT
    assert {("10.0.0.1", 1), ("10.0.0.2", 1)} <= kept
    assert ("10.0.0.1", 2) not in kept
