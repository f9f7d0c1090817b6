"""An operator that is no longer the leader sends nothing to the V-IPU Proxy."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.process.leadership import LeaseOverdue
from jobs.operator.partitions import only_while_leading
from tests.fakes.partitions import FakePartitions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jobs.operator.partitions import Partitions

JOB: dict[str, Any] = {
    "uid": "u",
    "namespace": "default",
    "name": "sample",
    "instance": 0,
    "size": 4,
}
CHANGES = {
    "ensure": lambda to: to.ensure(**JOB, attempt=1),
    "reset": lambda to: to.reset("u", 0, 1),
    "release": lambda to: to.release("u", 0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_no_change_reaches_the_proxy_from_who_may_not_lead_any_more(
    change: Callable[[Partitions], Awaitable[object]],
) -> None:
    proxy = FakePartitions()
    before = await proxy.ensure(**JOB, attempt=0)
    with pytest.raises(LeaseOverdue) as refused:
        await change(only_while_leading(proxy, lambda: 0.0))
    assert refused.value.retryable
    assert await only_while_leading(proxy, lambda: 0.0).list() == [before]
    await change(only_while_leading(proxy, lambda: math.inf))
    assert await proxy.list() != [before]


async def test_an_operator_that_stood_still_does_not_release_what_its_successor_has_got() -> None:
    proxy = FakePartitions()
    left = 10.0
    first = only_while_leading(proxy, lambda: left)
    second = only_while_leading(proxy, lambda: 10.0)
    await first.ensure(**JOB, attempt=0)
    left = 0.0  # it has seen no pod, and stands still; meanwhile the job is resumed:
    await second.release("u", 0)
    resumed = await second.ensure(**JOB, attempt=1)
    with pytest.raises(LeaseOverdue):
        await first.release("u", 0)
    assert await proxy.list() == [resumed]


async def test_a_call_is_given_up_before_another_operator_can_lead() -> None:
    class Silent(FakePartitions):
        async def release(self, uid: str, instance: int) -> Any:
            await asyncio.Event().wait()

    with pytest.raises(LeaseOverdue):
        await only_while_leading(Silent(), lambda: 0.01).release("u", 0)
