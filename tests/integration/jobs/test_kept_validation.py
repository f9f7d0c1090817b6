"""A cached validation result of a spec is reused until something that it depends on changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jobs.ipujob.names import JobKey
from jobs.ipujob.privileges import NOBODYS
from jobs.ipujob.spec import UNLIMITED, parse_spec
from jobs.ipujob.validation import problems
from jobs.operator import observer
from jobs.operator.observer import SpecCache
from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld
from tests.fakes.jsoncopy import copied

if TYPE_CHECKING:
    from typing import Any

KEY = JobKey("default", "sample", "uid-1")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The specs that the rules validated."""
    specs: list[object] = []

    def counting(name: str, spec: object, *rest: Any, **options: Any) -> Any:
        specs.append(spec)
        return problems(name, spec, *rest, **options)

    monkeypatch.setattr(observer, "problems", counting)
    return specs


def test_an_equal_spec_is_judged_once(judged: list[object]) -> None:
    job, known = ipujob().build(), SpecCache()
    first = known.of(KEY, job, UNLIMITED, NOBODYS)
    for _ in range(3):
        assert known.of(KEY, copied(job), UNLIMITED, NOBODYS) is first
    assert first.problems == ()
    assert first.spec == parse_spec(job["spec"])
    assert len(judged) == 1


def test_a_change_of_spec_or_rules_is_judged_anew() -> None:
    job, known = ipujob().build(), SpecCache()
    assert known.of(KEY, job, UNLIMITED, NOBODYS).problems == ()
    other = copied(job)
    other["spec"]["workers"]["template"]["spec"]["hostPID"] = True
    assert len(known.of(KEY, other, UNLIMITED, NOBODYS).problems) == 1
    assert known.of(KEY, other, UNLIMITED, replace(NOBODYS, profile="privileged")).problems == ()
    assert known.of(KEY, job, UNLIMITED, NOBODYS).problems == ()


async def test_a_job_is_judged_once_on_its_way_and_forgotten_when_it_has_gone(
    judged: list[object],
) -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert len(judged) == 1
    world.kube.delete_job("sample")
    await world.run(6)
    assert world.kube.job("sample") is None
    known = world.controller.observer._judgements._known
    assert uid not in known
