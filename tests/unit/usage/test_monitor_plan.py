"""Ends that the monitor leaves to the prober, and inconclusive answers of the API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from ipuhub.kube.errors import ApiError, Gone, NotFound, ServerError
from usage.monitor.api import PodCensus
from usage.monitor.store import (
    FEW,
    Answer,
    Question,
    Suspect,
    WatchState,
    is_probers,
    questions_for,
)

NOW = datetime(2026, 11, 5, 12, tzinfo=UTC)
ONE = Suspect("u1", "a", "pod-1", NOW)
_FRESH = {"cluster_uid": "c", "resource_version": "7", "position_at": NOW - timedelta(seconds=300)}


@pytest.mark.parametrize(
    ("watch", "want"),
    [
        ({}, True),
        ({"namespace": "a"}, True),
        ({"namespace": "b"}, False),
        ({"cluster_uid": "d"}, False),
        ({"position_at": None}, False),
        ({"position_at": NOW - timedelta(seconds=300.1)}, False),
        ({"resource_version": "8"}, False),
        ({"resource_version": "9"}, False),
        ({"resource_version": "seven"}, True),
    ],
    ids=str,
)
def test_an_end_is_the_probers_while_it_is_on_its_way_to_it(
    watch: dict[str, Any], want: bool
) -> None:
    answer = Answer(Question("a", (ONE,)), frozenset(), "8", NOW, NOW)
    assert is_probers(WatchState(**(_FRESH | watch)), answer, "c", 300) is want


def test_few_pods_of_a_namespace_are_asked_for_by_name_and_more_by_a_list() -> None:
    many = [Suspect(f"u{n}", "b", f"pod-{n}", NOW) for n in range(FEW + 1)]
    few, more = questions_for([*many, *(Suspect(f"v{n}", "a", "x", NOW) for n in range(FEW))])
    assert (few.namespace, few.is_list, len(few.suspects)) == ("a", False, FEW)
    assert (more.namespace, more.is_list, len(more.suspects)) == ("b", True, FEW + 1)


@dataclass
class Server:
    """An API server with prepared answers."""

    pods: list[Any] = field(default_factory=list)
    lists: list[Any] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)

    async def get(self, *_: object) -> Any:
        return self._next(self.pods)

    async def list_page(self, _kind: object, _namespace: str, params: dict[str, str]) -> bytes:
        self.queries.append(dict(params))
        return orjson.dumps(self._next(self.lists))

    @staticmethod
    def _next(answers: list[Any]) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def page(*uids: str, **meta: Any) -> dict[str, Any]:
    items = [{"metadata": {"uid": uid}} for uid in uids]
    return {"kind": "PodList", "metadata": {"resourceVersion": "9"} | meta, "items": items}


async def ask(server: Server, suspects: int = 1) -> Answer:
    question = tuple(Suspect(f"u{n + 1}", "a", f"pod-{n + 1}", NOW) for n in range(suspects))
    census = PodCensus(server, lambda: NOW)  # type: ignore[arg-type]
    return await census.ask(Question("a", question))


def missing(**details: str) -> NotFound:
    return NotFound(404, "NotFound", "not found", {"kind": "pods", "name": "pod-1"} | details)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ({"kind": "Pod", "metadata": {"uid": "u1"}}, ["u1"]),
        ({"kind": "Pod", "metadata": {"uid": "u2"}}, []),
        (missing(), []),
    ],
    ids=["there", "another of its name", "gone"],
)
async def test_a_pod_is_there_by_its_uid(answer: Any, want: list[str]) -> None:
    found = await ask(Server([answer], [page()]))
    assert (sorted(found.present), found.revision) == (want, "9")


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "Pod", "metadata": {}},
        {"kind": "Status", "metadata": {"uid": "u2"}},
        missing(kind="namespaces"),
        missing(name="pod-2"),
    ],
    ids=["no uid", "no pod", "a 404 of something else", "a 404 of another pod"],
)
async def test_an_answer_about_something_else_is_none(answer: Any) -> None:
    with pytest.raises(ApiError):
        await ask(Server([answer], [page()]))


@pytest.mark.parametrize(
    "answer",
    [
        page("u1", remainingItemCount=3),
        page("u1") | {"kind": "Table"},
        page("u1", resourceVersion=""),
        {"kind": "PodList", "items": []},
    ],
    ids=["cut short", "another kind", "no version", "no metadata"],
)
async def test_a_list_that_is_not_whole_is_none(answer: Any) -> None:
    with pytest.raises(ServerError):
        await ask(Server([], [answer]), FEW + 1)


async def test_a_list_whose_version_is_lost_halfway_is_asked_for_in_one_piece() -> None:
    gone = Gone(410, "Expired", "too old")
    server = Server([], [page("u1", **{"continue": "more"}), gone, page("u2", "u3")])
    assert (await ask(server, FEW + 1)).present == {"u2", "u3"}
    assert server.queries == [{"limit": "500"}, {"limit": "500", "continue": "more"}, {}]
