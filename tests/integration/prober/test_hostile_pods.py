"""Pods made to hurt: counted with what can be read of them, the rest stored and shown as faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from ipuhub.recording.recorder import LONGEST_EXCERPT
from tests.fakes.podstream import expected_row, pod_of, uid_of
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.prober.conftest import Lab

SAID = {"component": "c", "component_name": "n", "group": "g", "instance_type": "i", "user": "u"}


def stamp_of(**fields: Any) -> str:
    return orjson.dumps({**SAID, **fields}).decode()


_SOUND = stamp_of()
ANNOTATIONS = {
    "empty": "",
    "blank": " ",
    "text": "{component: job}",
    "cut-off": _SOUND[:-9],
    "two": _SOUND + _SOUND,
    "null": "null",
    "string": '"job"',
    "list": f"[{_SOUND}]",
    "null-group": stamp_of(group=None),
    "object-group": stamp_of(group={"a": "b"}),
    "number-user": stamp_of(user=7),
    "nul": stamp_of(group="a\0b"),
    "long": stamp_of(user="x" * 1000),
    "many-ipus": stamp_of(ipus=2**63),
    "negative-ipus": stamp_of(ipus=-1),
    "half-ipus": stamp_of(ipus=0.5),
    "huge-number": _SOUND[:-1] + ',"ipus":' + "9" * 5000 + "}",
    "deep": _SOUND[:-1] + ',"x":' + "[" * 20_000 + "]" * 20_000 + "}",
    "half-surrogate": _SOUND.replace('"g"', '"\\ud83d"'),
    "256-kB": '{"group":"' + "x" * (256 * 1024),
    "1-MB": '{"group":"' + "y" * 2**20 + '"}',
}


async def test_no_annotation_stops_the_recording_and_each_is_shown_as_a_fault(lab: Lab) -> None:
    for number, (name, text) in enumerate(ANNOTATIONS.items()):
        pod = pod_of(number, "ENDED")
        pod["metadata"] |= {"name": name, "annotations": {"ipuhub.io/usage": text}}
        lab.server.put("ADDED", pod)
    lab.server.step(500, "ENDED")
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    rows = {row["pod_name"]: row for row in lab.rows().values()}
    assert set(rows) == {*ANNOTATIONS, "pod-500"}
    for number, name in enumerate(ANNOTATIONS):
        row = rows[name]
        assert (row["claim"], row["group"]) == ("namespace", f"team-{number % 3}"), name
        assert row["finished_at"] == expected_row(number).finished_at
        assert row["cpu_millicores"] == 500
    faults = lab.faults()
    assert set(faults) == set(ANNOTATIONS)
    assert {fault["code"] for fault in faults.values()} == {"usage-annotation"}
    for name, text in ANNOTATIONS.items():
        fault = faults[name]
        assert fault["message"], name
        assert len(fault["message"]) < 1000, name
        assert fault["excerpt"] == text[:LONGEST_EXCERPT].replace("\0", "\ufffd"), name


QUANTITIES = {
    "words": "many",
    "empty": "",
    "space": " 1",
    "comma": "1,5",
    "hexadecimal": "0x10",
    "nan": "NaN",
    "infinity": "Infinity",
    "negative": "-1",
    "beyond-64-bits": "9223372036854775808",
    "exponent": "1e999",
    "unknown-suffix": "1GB",
    "digits": "1" * 10_000,
    "arabic-digits": "١٢",
    "list": ["1"],
    "truth": True,
    "object": {"a": 1},
}


@pytest.mark.parametrize("resource", ["cpu", "memory", "nvidia.com/gpu"])
async def test_an_amount_that_is_none_counts_nothing_and_says_so(lab: Lab, resource: str) -> None:
    for number, amount in enumerate(QUANTITIES.values()):
        pod = pod_of(number, "ENDED")
        requests: dict[str, Any] = {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"}
        pod["spec"]["containers"][0]["resources"]["requests"] = requests | {resource: amount}
        lab.server.put("ADDED", pod)
    lab.server.step(500, "ENDED")
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    rows, faults = lab.rows(), lab.faults()
    assert uid_of(500) in rows
    column = {"cpu": "cpu_millicores", "memory": "memory_bytes"}.get(resource, "gpus")
    for number, name in enumerate(QUANTITIES):
        fault = faults[f"pod-{number}"]
        if uid_of(number) in rows:
            assert (fault["code"], rows[uid_of(number)][column]) == ("quantity", 0), name
            assert resource in fault["message"], name
        else:
            assert fault["code"] == "unreadable", name
            assert isinstance(QUANTITIES[name], list | dict | bool), name


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": []},
        {"containers": [{"name": "main"}]},
        {"containers": [{"name": "main", "resources": {}}]},
        {"containers": [{"name": "main", "resources": {"requests": None, "limits": {}}}]},
        {"containers": None, "initContainers": None},
    ],
    ids=["nothing", "no container", "no resources", "empty", "null", "null containers"],
)
async def test_a_pod_without_requests_counts_its_time(lab: Lab, spec: dict[str, Any]) -> None:
    pod = pod_of(1, "ENDED")
    pod["spec"] = spec
    lab.server.put("ADDED", pod)
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    row = lab.rows()[uid_of(1)]
    assert (row["cpu_millicores"], row["memory_bytes"], row["gpus"]) == (0, 0, 0)
    assert row["finished_at"] == expected_row(1).finished_at
    assert not lab.faults()
