"""Prober, second prober and monitor on one pod's row: every order of their statements ends right.

The pod ended a while ago. The first prober is about to commit its exact end; a second prober takes
the watch over and lists; the monitor has found the pod gone and ends it.
"""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ipuhub.recording.buffer import Batch
from ipuhub.recording.reading import Decoder, Reader
from ipuhub.recording.store import Fenced, Store
from tests.fakes.longform import IS_LONG
from tests.fakes.podstream import expected_row, uid_of
from tests.integration.monitor.conftest import ago
from tests.integration.monitor.interleaving import run_in_order
from usage.monitor.store import Answer, MonitorStore, Question
from usage.pods.recorder import PodRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.integration.monitor.conftest import Lookout

STALE = 300
PROBER, SECOND, MONITOR = 0, 1, 2
STOPS = (5, 9, 9)  # of each: statements and commits
ENDED = ago(1_000)
POSITION = ago(1_200)  # of the last commit, before the end
LISTED = ago(2)
# Orders of each combination; 2,002 are all that prober and monitor have.
MOST = 2_002 if IS_LONG else 10


def first_prober(lookout: Lookout) -> Callable[[dict[str, Any]], Any]:
    """Commits the DELETED event that it has read."""
    return prober_of(lookout, 1)


def prober_of(lookout: Lookout, pods: int) -> Callable[[dict[str, Any]], Any]:
    """Commits the last events of the first so many pods, each of which had two."""
    reader: Reader[Any] = Reader(PodRecorder())
    lines = [line for _, line in lookout.server.log[1 : 2 * pods : 2]]
    changes = [Decoder(PodRecorder.manifest).line(line) for line in lines]

    def work(database: dict[str, Any]) -> Any:
        store: Store[Any] = Store(database, PodRecorder())
        store.checkpoint = lookout_checkpoint(lookout)
        batch = reader.read(changes, ago(990))
        with closing(store):
            return store.commit(batch)

    return work


def lookout_checkpoint(lookout: Lookout) -> Any:
    from ipuhub.recording.shapes import Checkpoint

    return Checkpoint(1, "cluster-1", "101", "all", POSITION)


def second_prober(_: Lookout) -> Callable[[dict[str, Any]], Any]:
    """Takes over, and lists: the pod is no longer there."""

    def work(database: dict[str, Any]) -> Any:
        store: Store[Any] = Store(database, PodRecorder())
        with closing(store):
            store.take_over()
            batch: Batch[Any] = Batch("104", LISTED)
            return store.replace(batch, [], "cluster-1", "a test")

    return work


def monitor(lookout: Lookout) -> Callable[[dict[str, Any]], Any]:
    """Finds the pod gone at version 104."""
    return monitor_that_sees(lookout)


def monitor_that_sees(_: Lookout, *numbers: int) -> Callable[[dict[str, Any]], Any]:
    """Finds these pods there, and all others gone at version 104."""
    present = frozenset(uid_of(number) for number in numbers)

    def work(database: dict[str, Any]) -> Any:
        with closing(MonitorStore(database, STALE)) as store:
            watch = store.watch()
            suspects = store.suspects("cluster-1", ago(STALE), 10)
            if not suspects:
                return None
            answer = Answer(Question("team-0", tuple(suspects)), present, "104", ago(2), ago(1))
            return store.settle(answer, "cluster-1", watch.epoch)

    return work


def orders(numbers: tuple[int, ...], most: int) -> Iterable[list[int]]:
    """Every order of the statements of these actors, or `most` of them, always the same."""
    steps = [index for index, number in enumerate(numbers) for _ in range(STOPS[number])]
    if len(numbers) == 2:
        first = STOPS[numbers[0]]
        places = [*itertools.combinations(range(len(steps)), first)]
        if len(places) > most:
            places = random.Random(5).sample(places, most)
        for chosen in places:
            yield [0 if place in chosen else 1 for place in range(len(steps))]
        return
    choose = random.Random(5)
    for _ in range(most):
        yield choose.sample(steps, len(steps))


def check_all(lookout: Lookout, numbers: tuple[int, ...], most: int) -> None:
    makers = (first_prober, second_prober, monitor)
    truth = expected_row(0)
    lookout.server.step(0, "ADDED")
    lookout.server.step(0, "DELETED")
    outcomes = set()
    for order in orders(numbers, most):
        lookout.execute("DELETE FROM usage_podlifetime; DELETE FROM ipuhub_watchcheckpoint")
        lookout.remember(0, ago(5_000))
        lookout.watched(101, POSITION)
        works = [makers[number](lookout) for number in numbers]
        results = dict(zip(numbers, run_in_order(lookout.database, works, order), strict=True))
        errors = [one for one in results.values() if isinstance(one, Exception)]
        assert all(isinstance(one, Fenced) for one in errors), (order, results)
        row = lookout.row(0)
        is_exact = PROBER in numbers and not isinstance(results[PROBER], Fenced)
        outcomes.add((is_exact, row["end_source"]))
        if is_exact:
            want = (truth.finished_at, False, "event")
            assert (row["finished_at"], row["estimated"], row["end_source"]) == want, order
        else:
            assert row["estimated"], order
            off = abs((row["finished_at"] - ENDED).total_seconds())
            assert off <= row["uncertainty_seconds"], (order, row)
    print(numbers, sorted(outcomes))


async def test_the_prober_and_the_monitor(lookout: Lookout) -> None:
    check_all(lookout, (PROBER, MONITOR), MOST)


async def test_two_probers(lookout: Lookout) -> None:
    check_all(lookout, (PROBER, SECOND), MOST)


async def test_the_second_prober_and_the_monitor(lookout: Lookout) -> None:
    check_all(lookout, (SECOND, MONITOR), MOST)


async def test_all_three(lookout: Lookout) -> None:
    check_all(lookout, (PROBER, SECOND, MONITOR), MOST)


async def test_two_monitors_end_a_row_once(lookout: Lookout) -> None:
    for order in orders((MONITOR, MONITOR), MOST):
        lookout.execute("DELETE FROM usage_podlifetime; DELETE FROM ipuhub_watchcheckpoint")
        lookout.remember(0, ago(5_000))
        lookout.watched(101, POSITION)
        works = [monitor(lookout), monitor(lookout)]
        results = run_in_order(lookout.database, works, order)
        assert sum(closed for one in results if one for closed in [one[1]]) == 1, (order, results)


async def test_a_monitor_and_a_prober_with_the_same_rows_do_not_wait_for_each_other(
    lookout: Lookout,
) -> None:
    """The monitor sees the second pod, then ends the first; the prober writes both in their order.
    However far the monitor is when the prober comes, Postgres has no deadlock to break."""
    for number, last in enumerate(("DELETED", "RUNNING")):
        lookout.server.step(number, "ADDED")
        lookout.server.step(number, last)
    for lead in range(STOPS[MONITOR] + 1):
        lookout.execute("DELETE FROM usage_podlifetime; DELETE FROM ipuhub_watchcheckpoint")
        for number in range(2):
            lookout.remember(number, ago(5_000))
        lookout.watched(101, POSITION)
        works = [prober_of(lookout, 2), monitor_that_sees(lookout, 1)]
        results = run_in_order(lookout.database, works, [1] * lead + [0, 1] * 9)
        assert not [one for one in results if isinstance(one, Exception)], (lead, results)
        assert (lookout.is_open(0), lookout.is_open(1)) == (False, True)
