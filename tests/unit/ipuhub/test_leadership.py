"""The times of a Lease: two replicas must never work side by side."""

from __future__ import annotations

import pytest

from ipuhub.kube.errors import ConfigError
from ipuhub.kube.leaderelection import LeaseTiming
from ipuhub.process.leadership import LeadershipOptions


@pytest.mark.parametrize(
    "timing",
    [
        pytest.param((15, 15, 2), id="renewed until it runs out"),
        pytest.param((15, 10, 10), id="tried once"),
        pytest.param((15, 10, 0), id="tried without a pause"),
    ],
)
def test_times_at_which_two_could_work_are_refused(timing: tuple[int, int, int]) -> None:
    duration, renew, retry = timing
    with pytest.raises(ConfigError, match="each must be less than the previous value"):
        LeadershipOptions(
            namespace="default",
            lease="a",
            identity="me",
            timing=LeaseTiming(
                duration_seconds=duration, renew_deadline_seconds=renew, retry_seconds=retry
            ),
        )


def test_times_that_leave_a_margin_are_taken() -> None:
    assert (
        LeadershipOptions(
            namespace="default",
            lease="a",
            identity="me",
            timing=LeaseTiming(duration_seconds=3, renew_deadline_seconds=2, retry_seconds=1),
        ).timing.retry_seconds
        == 1
    )
