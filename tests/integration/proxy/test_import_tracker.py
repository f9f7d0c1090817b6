"""`import_tracker`: adopts partitions of Graphcore's operator and leaves unclear ones unchanged."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from devcluster.demo.cluster import CRD_FILE, apply_file
from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.partition import Phase
from jobs.ipujob.names import IPUJOBS
from partitions.proxy.process import sweep_once
from partitions.proxy.tracker import decode_entry, encode_entry
from partitions.vipu.client import CreateRequest, VipuClient
from tests.builders.ipujobs import ipujob
from tests.builders.trackerentries import entry
from tests.fakes.proxylab import LABEL, SYSTEM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.fakes.proxylab import Lab


@pytest.fixture
async def old(lab: Lab, settings: Any) -> AsyncIterator[Callable[..., Any]]:
    """Write the original's tracker and jobs, run the command, return what it says."""
    settings.KUBECONFIG, settings.KUBE_CONTEXT, settings.NAMESPACE = lab.kubeconfig, "", SYSTEM
    settings.TRACKER_CONFIGMAP = lab.tracker
    settings.VIPU_CONTROLLERS = f"127.0.0.1:{lab.vipu_port}:{LABEL}"
    settings.VIPU_CONTROLLERS_PATH = ""
    await apply_file(lab.client, CRD_FILE)

    async def run(*arguments: str) -> tuple[list[str], str]:
        out = io.StringIO()
        try:
            await asyncio.to_thread(call_command, "import_tracker", *arguments, stdout=out)
        except CommandError as error:
            return out.getvalue().splitlines(), str(error)
        *lines, last = out.getvalue().splitlines()
        return lines, last

    yield run
    for job in (await lab.client.list(IPUJOBS)).items:
        await lab.client.delete(IPUJOBS, job["metadata"]["name"], job["metadata"]["namespace"])


async def tracker(lab: Lab, data: dict[str, str], name: str = "") -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name or lab.tracker}}
    await lab.client.create(CONFIG_MAPS, {**made, "data": data}, SYSTEM)


async def stored(lab: Lab) -> dict[str, str]:
    found: dict[str, str] = (await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM))["data"]
    return found


async def partition(lab: Lab, name: str, size: int = 4) -> None:
    async with VipuClient(f"127.0.0.1:{lab.vipu_port}") as vipu:
        await vipu.create_partition(CreateRequest(name, size))


async def job(lab: Lab, name: str, **spec: Any) -> str:
    body = ipujob(name).current_shape().ipus(4).with_spec(**spec).without_finalizer().build()
    body["metadata"] = {"name": name, "namespace": "default"}
    return str((await lab.client.create(IPUJOBS, body))["metadata"]["uid"])


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("p-train-default-0", "default/train"),
        ("default.train", '{"partitionID": "p-train-default-0", "size": 4}'),
        ("partitions", "- job: train\n  partition: p-train-default-0\n"),
    ],
)
async def test_a_partition_is_taken_over_for_its_job_whatever_the_layout(
    lab: Lab, old: Callable[..., Any], key: str, text: str
) -> None:
    await partition(lab, "p-train-default-0")
    uid = await job(lab, "train")
    await tracker(lab, {key: text})
    lines, last = await old()
    where = f"p-train-default-0 on 127.0.0.1:{lab.vipu_port}"
    assert lines == [f"{key}: {where} belongs to default/train.", "  Taken over."]
    assert last == "Nothing is left to take over."
    await sweep_once(lab.options)
    data = await stored(lab)
    assert data.pop(key) == text  # nothing of the original is lost
    ((ours, entered),) = data.items()
    found = decode_entry(ours, entered)
    assert (found.uid, found.instance, found.id, found.size) == (uid, 0, "p-train-default-0", 4)
    assert found.phase is Phase.ACTIVE
    assert await lab.exists() == ["p-train-default-0"]


async def test_a_dry_run_says_the_same_and_writes_nothing(
    lab: Lab, old: Callable[..., Any]
) -> None:
    await partition(lab, "p-train-default-0")
    await job(lab, "train")
    await tracker(lab, {"a": "p-train-default-0"})
    lines, _ = await old("--dry-run")
    assert lines[0].endswith("belongs to default/train.")
    assert lines[1] == "  Would be taken over."
    assert await stored(lab) == {"a": "p-train-default-0"}
    assert (await old())[0] == [lines[0], "  Taken over."]


async def test_twice_is_once(lab: Lab, old: Callable[..., Any]) -> None:
    await partition(lab, "p-train-default-0")
    await job(lab, "train")
    await tracker(lab, {"a": "p-train-default-0"})
    await old()
    before = await stored(lab)
    lines, last = await old()
    assert lines == ["a: p-train-default-0 is in the tracker already, for default/train."]
    assert last == "Nothing is left to take over."
    assert await stored(lab) == before


async def test_all_instances_in_one_value_and_another_map(
    lab: Lab, old: Callable[..., Any]
) -> None:
    for number in (0, 1):
        await partition(lab, f"p-train-default-{number}")
    await job(lab, "train", jobInstances=2)
    name = f"{lab.tracker}-old"
    await tracker(lab, {"all": "[p-train-default-0, p-train-default-1]"}, name)
    try:
        lines, last = await old("--from", f"{SYSTEM}/{name}")
    finally:
        await lab.client.delete(CONFIG_MAPS, name, SYSTEM)
    assert lines.count("  Taken over.") == 2
    assert last == "Nothing is left to take over."
    entries = [decode_entry(key, text) for key, text in (await stored(lab)).items()]
    assert {(one.id, one.instance) for one in entries} == {
        ("p-train-default-0", 0),
        ("p-train-default-1", 1),
    }


async def test_what_it_does_not_understand_is_named_and_left(
    lab: Lab, old: Callable[..., Any]
) -> None:
    for name, size in {"mine": 2, "p-a-b-default-0": 4, "p-large-default-0": 8}.items():
        await partition(lab, name, size)
    await partition(lab, "p-once-default-1", 2)
    for name in ("large", "once"):
        await job(lab, name)
    given = {
        "gone": "p-gone-default-0",
        "odd": "{[ :",
        "by-hand": "mine",
        "no-job": "p-a-b-default-0",
        "size": "p-large-default-0",
        "instance": "p-once-default-1",
    }
    await tracker(lab, given)
    lines, last = await old()
    where = f"on 127.0.0.1:{lab.vipu_port}"
    assert lines == [
        f"by-hand: mine {where}: no IPUJob fits its id.",
        "gone: it names no partition that a V-IPU controller has.",
        f"instance: p-once-default-1 {where}: no IPUJob fits its id.",
        f"no-job: p-a-b-default-0 {where}: no IPUJob fits its id.",
        "odd: it names no partition that a V-IPU controller has.",
        f"size: p-large-default-0 {where} has 8 IPUs, but default/large asks for 4.",
    ]
    assert last == "6 left as they are. Correct the causes and repeat."
    assert await stored(lab) == given
    assert len(await lab.exists()) == 4


async def test_a_job_that_holds_another_partition_by_now_keeps_it(
    lab: Lab, old: Callable[..., Any]
) -> None:
    await partition(lab, "p-train-default-0")
    uid = await job(lab, "train")
    ours = entry(uid=uid, id="p-new", name="train", controller=f"127.0.0.1:{lab.vipu_port}")
    await tracker(lab, {"a": "p-train-default-0", ours.key: encode_entry(ours)})
    lines, last = await old()
    assert lines[0].endswith("default/train holds p-new by now.")
    assert last.startswith("1 left")


async def test_nothing_is_done_while_a_controller_is_silent(
    lab: Lab, old: Callable[..., Any]
) -> None:
    await tracker(lab, {"a": "p-train-default-0"})
    await lab.stop_vipu()
    lines, last = await old()
    assert lines == []
    assert last.startswith(f"V-IPU controllers do not answer: 127.0.0.1:{lab.vipu_port} (")


async def test_a_map_that_is_not_there_and_a_name_that_is_none_are_refused(
    old: Callable[..., Any],
) -> None:
    assert (await old("--from", "x/none"))[1] == "There is no ConfigMap x/none."
    assert (await old("--from", "none"))[1] == "--from none: write NAMESPACE/NAME."
