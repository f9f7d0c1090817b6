"""Bad input: a fault that is stored and shown, and nothing that stops the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tests.fakes.podstream import STEPS, expected_row, pod_of, uid_of

if TYPE_CHECKING:
    from tests.integration.prober.conftest import Lab


def poisoned(number: int, annotation: Any = None, **meta: Any) -> dict[str, Any]:
    pod = pod_of(number, "ENDED")
    pod["metadata"] |= meta
    if annotation is not None:
        pod["metadata"]["annotations"] = {"ipuhub.io/usage": annotation}
    return pod


async def test_broken_annotations_count_for_their_namespace_and_are_kept(lab: Lab) -> None:
    lab.start()
    await lab.all_recorded()
    usage = {"component": "c", "component_name": "n", "group": "g", "instance_type": "i"}
    broken = {
        "text": "{not json",
        "list": "[]",
        "lacking": orjson.dumps({"component": "c"}).decode(),
        "number": orjson.dumps({**usage, "group": 7}).decode(),
        "nul": orjson.dumps({**usage, "group": "a\0b"}).decode(),
        "long": orjson.dumps({**usage, "user": "x" * 254}).decode(),
    }
    for number, (name, annotation) in enumerate(broken.items()):
        lab.server.put("ADDED", poisoned(number, annotation, name=name))
    long_name = "n" * 253
    good = orjson.dumps({**usage, "component_name": long_name, "group": '=1+1,"\n'}).decode()
    lab.server.put("ADDED", poisoned(100, good, name=long_name))
    await lab.all_recorded()
    rows = {row["pod_name"]: row for row in lab.rows().values()}
    assert {rows[name]["claim"] for name in broken} == {"namespace"}
    assert {name: rows[name]["group"] for name in broken} == {
        name: f"team-{number % 3}" for number, name in enumerate(broken)
    }
    assert set(lab.faults()) == set(broken)
    assert lab.faults()["text"]["excerpt"] == "{not json"
    assert (rows[long_name]["claim"], rows[long_name]["group"]) == ("annotation", '=1+1,"\n')


async def test_what_postgres_or_the_decoder_refuses_is_a_fault_beside_all_others(lab: Lab) -> None:
    lab.start()
    await lab.all_recorded()
    odd = {
        "nul-name": poisoned(1, name="nul-name", namespace="a\0b"),
        "no-text": poisoned(2, name="no-text", labels={"app": 7}),
        "no-time": poisoned(3, name="no-time", creationTimestamp="yesterday"),
    }
    for manifest in odd.values():
        lab.server.put("ADDED", manifest)
    wrong = poisoned(4, name="amounts")
    requests = {"cpu": "many", "memory": "1e99", "nvidia.com/gpu": "-1"}
    wrong["spec"]["containers"][0]["resources"]["requests"] = requests
    lab.server.put("ADDED", wrong)
    lab.emit(range(10, 20), *STEPS)
    await lab.all_recorded()
    rows = lab.rows()
    assert set(rows) == {uid_of(number) for number in (4, *range(10, 20))}
    assert rows[uid_of(4)]["cpu_millicores"] == 0
    faults = lab.faults()
    assert {name: faults[name]["code"] for name in faults} == {
        "nul-name": "refused",
        "no-text": "unreadable",
        "no-time": "unreadable",
        "amounts": "quantity",
    }
    assert faults["nul-name"]["namespace"] == "a\ufffdb"


async def test_an_annotation_taken_away_does_not_keep_a_pod_running(lab: Lab) -> None:
    lab.emit(range(1), "ADDED", "RUNNING")
    lab.start()
    await lab.all_recorded()
    for kind, step in (("MODIFIED", "ENDED"), ("DELETED", "DELETED")):
        pod = pod_of(0, step)
        del pod["metadata"]["annotations"]
        await lab.server.emit(kind, pod)
    await lab.all_recorded()
    (row,) = lab.rows().values()
    assert (row["finished_at"], row["claim"]) == (expected_row(0).finished_at, "annotation")


async def test_the_same_fault_is_stored_once(lab: Lab) -> None:
    for _ in range(3):
        lab.server.put("MODIFIED", poisoned(1, "{", name="bad"))
    lab.start()
    await lab.all_recorded()
    await lab.stop()
    lab.server.put("MODIFIED", poisoned(1, "{", name="bad"))
    lab.start()
    await lab.all_recorded()
    assert lab.faults()["bad"]["count"] == 1
