"""Tests that share a demo, and tests that start a demo, begin; nothing is lost on the way."""

from __future__ import annotations

import pytest

from tests.fakes.demosfirst import begin_with_demos


def demo_of(test: str) -> str:
    return {"s": "shared", "o": "own"}.get(test[0], "")


@pytest.mark.parametrize(
    ("workers", "want"),
    [
        (1, "s1 s2 o1 o2 a b c d e"),
        (2, "s1 s2 a b o1 o2 c d e"),
        (3, "s1 s2 a o1 o2 b c d e"),
        (8, "s1 s2 o1 o2 a b c d e"),
    ],
)
def test_each_kind_of_demo_is_where_a_worker_begins(workers: int, want: str) -> None:
    tests = ["a", "o1", "b", "s1", "c", "s2", "o2", "d", "e"]
    assert begin_with_demos(tests, demo_of, workers) == want.split()
