"""The operator's cache of partitions, from lists, answers and timeouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import structlog

from ipuhub.partition import Partition
from jobs.operator.partitions import PartitionFacts
from tests.builders.ipujobs import NOW, at
from tests.fakes.partitions import FakePartitions

ACTIVE = Partition(
    uid="u", namespace="team", name="train", instance=0, id="p-train", size=4, phase="active"
)
WAITING = replace(ACTIVE, id="", phase="waiting", reason="NoCapacity")


def facts_of(*records: Partition, is_live: bool = True) -> tuple[PartitionFacts, FakePartitions]:
    proxy = FakePartitions()
    hold(proxy, *records)
    return PartitionFacts(proxy, lambda _: is_live), proxy


def hold(proxy: FakePartitions, *records: Partition) -> None:
    proxy.records = {(record.uid, record.instance): record for record in records}


async def polled(*records: Partition, **options: Any) -> tuple[PartitionFacts, FakePartitions]:
    facts, proxy = facts_of(*records, **options)
    await facts.poll(NOW)
    return facts, proxy


def phases(facts: PartitionFacts, uid: str = "u") -> dict[int, str]:
    return {instance: str(one.phase) for instance, one in facts.of(uid).items()}


async def test_before_the_first_list_nothing_is_known_and_it_is_said() -> None:
    facts, _ = facts_of(ACTIVE)
    assert (facts.problem, facts.answered_at) == ("it has not answered yet", None)
    assert await facts.poll(at(7)) == {"u"}
    assert (facts.problem, facts.answered_at) == ("", at(7))


async def test_a_list_tells_of_what_has_changed_and_of_nothing_else() -> None:
    facts, proxy = await polled(ACTIVE, replace(ACTIVE, uid="v"))
    assert await facts.poll(at(2)) == set()
    proxy.set_phase("v", 0, "error", "a cable is loose")
    assert await facts.poll(at(4)) == {"v"}
    assert facts.of("v")[0].message == "a cable is loose"
    hold(proxy, ACTIVE, replace(ACTIVE, uid="w"))
    assert await facts.poll(at(6)) == {"v", "w"}
    assert facts.uids() == {"u", "w"}


async def test_of_several_instances_the_one_that_is_gone_is_forgotten() -> None:
    second = replace(ACTIVE, instance=1)
    facts, proxy = await polled(ACTIVE, second)
    hold(proxy, second)
    assert await facts.poll(at(2)) == {"u"}
    assert phases(facts) == {1: "active"}
    assert facts.owner("u") == ("team", "train")
    hold(proxy)
    assert await facts.poll(at(4)) == {"u"}
    assert facts.owner("u") is None


async def test_who_holds_a_partition_is_known_from_a_list_and_from_an_answer() -> None:
    facts, _ = await polled(ACTIVE)
    facts.note("v", replace(ACTIVE, uid="v", name="other"), at(1))
    assert facts.owner("u") == ("team", "train")
    assert facts.owner("v") == ("team", "other")


async def test_an_answer_is_newer_than_a_list_that_was_asked_for_before_it() -> None:
    class Slow(FakePartitions):
        async def list(self) -> list[Any]:
            before = list(self.records.values())
            for record in answered:
                facts.note("u", record, at(3))
            return before

    answered: list[Partition] = []
    facts = PartitionFacts(Slow(), lambda _: True)
    hold(facts._partitions, replace(ACTIVE, phase="creating"))  # type: ignore[arg-type]
    await facts.poll(NOW)
    answered = [ACTIVE]
    assert await facts.poll(at(2)) == set()
    assert phases(facts) == {0: "active"}
    answered = []
    assert await facts.poll(at(4)) == {"u"}  # this partition was requested later than that answer
    assert phases(facts) == {0: "creating"}


async def test_a_list_does_not_say_when_we_have_asked() -> None:
    facts, proxy = await polled()
    facts.note("u", replace(ACTIVE, phase="creating"), at(1))
    hold(proxy, ACTIVE)
    await facts.poll(at(2))
    assert facts.of("u")[0].asked_at == at(1)


async def test_what_the_proxy_knows_no_more_of_is_released_with_its_id() -> None:
    facts, proxy = await polled(ACTIVE, replace(ACTIVE, instance=1))
    facts.note_released("u", 0)
    facts.note_released("never-seen", 2)
    assert phases(facts) == {0: "released", 1: "active"}
    assert facts.of("u")[0].id == "p-train"
    assert phases(facts, "never-seen") == {2: "released"}
    hold(proxy)
    await facts.poll(at(2))
    assert phases(facts) == {0: "released"}


async def test_a_released_one_that_is_listed_as_held_after_that_is_held() -> None:
    facts, proxy = await polled(ACTIVE)
    facts.note_released("u", 0)
    assert await facts.poll(at(2)) == {"u"}
    assert phases(facts) == {0: "active"}
    assert proxy.calls == ["list", "list"]


async def test_what_a_job_that_is_gone_waited_for_is_forgotten() -> None:
    facts, _ = await polled(is_live=False)
    facts.note("u", WAITING, at(1))
    assert await facts.poll(at(2)) == {"u"}
    assert facts.uids() == set()


async def test_a_silence_and_its_end_are_news_to_all_once_and_logged_once() -> None:
    facts, proxy = await polled(ACTIVE)
    facts.note("waits", WAITING, at(1))
    with structlog.testing.capture_logs() as logged:
        proxy.away = True
        assert await facts.poll(at(2)) == {"u", "waits"}
        for seconds in (3, 4):
            assert await facts.poll(at(seconds)) == set()
        assert (facts.problem, facts.answered_at) == ("connection refused", NOW)
        proxy.away = False
        assert await facts.poll(at(4.5)) == {"u", "waits"}
        assert await facts.poll(at(5)) == set()
    assert [(one["event"], one.get("why") or one["before"]) for one in logged] == [
        ("the V-IPU Proxy does not answer; trying again", "connection refused"),
        ("the V-IPU Proxy answers", "connection refused"),
    ]
    assert (facts.problem, facts.answered_at) == ("", at(5))


async def test_what_went_during_a_silence_is_news_at_its_end() -> None:
    facts, proxy = await polled(ACTIVE, replace(ACTIVE, uid="v"), is_live=False)
    proxy.away = True
    await facts.poll(at(2))
    proxy.away = False
    hold(proxy, ACTIVE)
    assert await facts.poll(at(4)) == {"u", "v"}


async def test_a_proxy_that_has_never_answered_is_logged_once_and_nobodys_news() -> None:
    facts, proxy = facts_of()
    facts.note("u", WAITING, NOW)
    proxy.away = True
    with structlog.testing.capture_logs() as logged:
        for seconds in (1, 2, 3):
            assert await facts.poll(at(seconds)) == set()
    assert [one["why"] for one in logged] == ["connection refused"]
    assert facts.problem == "connection refused"


async def test_a_silence_without_a_word_is_a_problem_too() -> None:
    class Speechless(Exception):  # noqa: N818
        retryable = True

    class Proxy(FakePartitions):
        async def list(self) -> list[Any]:
            raise Speechless

    facts = PartitionFacts(Proxy(), lambda _: True)
    await facts.poll(NOW)
    assert facts.problem == "no answer"


async def test_a_fault_of_the_program_is_no_silence_of_the_proxy() -> None:
    class Broken(FakePartitions):
        async def list(self) -> list[Any]:
            raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        await PartitionFacts(Broken(), lambda _: True).poll(NOW)


async def test_any_news_and_the_end_of_a_silence_wake_who_waits() -> None:
    facts, proxy = await polled()
    facts.note("waits", WAITING, at(1))
    hold(proxy, ACTIVE)
    assert await facts.poll(at(2)) == {"u", "waits"}
    facts.note("waits", WAITING, at(3))
    for proxy.away in (True, False):
        await facts.poll(at(4))
    assert facts.of("waits")[0].asked_at is None


async def test_only_who_was_woken_and_does_not_ask_leaves_the_line() -> None:
    facts, _ = await polled(ACTIVE)
    for instance in (1, 2):
        facts.note("u", replace(WAITING, instance=instance), at(1))
    facts.leave_line("u", set())
    assert phases(facts) == {0: "active", 1: "waiting", 2: "waiting"}
    facts.wake_waiting(at(2))
    facts.leave_line("u", {2})
    assert phases(facts) == {0: "active", 2: "waiting"}
    assert (facts.waiting(), facts.owner("u")) == ({"u"}, ("team", "train"))


async def test_a_try_is_made_again_five_seconds_after_it_and_after_the_last_wake_up() -> None:
    facts, _ = await polled()
    facts.note("u", WAITING, at(10))
    facts.note("later", WAITING, at(13))
    for seconds in (15, 20):
        assert await facts.poll(at(seconds - 0.1)) == set()
        assert await facts.poll(at(seconds)) == {"u", "later"}
