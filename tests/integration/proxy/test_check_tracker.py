"""`check_tracker`: differences between tracker and controllers, and manual changes."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from devcluster.demo.cluster import ACCESS_FILE, CRD_FILE, apply_file, write_account_kubeconfig
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS
from ipuhub.partition import Phase, Reason
from jobs.ipujob.names import IPUJOBS
from partitions.errors import UnknownPartition
from partitions.proxy.drift import Claim, UntrackedPartition
from partitions.proxy.process import sweep_once
from partitions.proxy.repair import Repair, read_claims, read_jobs, strangers
from partitions.proxy.tracker import decode_entry, encode_entry
from partitions.vipu.client import CreateRequest, VipuClient
from tests.builders.ipujobs import ipujob
from tests.builders.trackerentries import entry
from tests.fakes.manyobjects import ManyObjects, memory_below
from tests.fakes.proxylab import LABEL, SYSTEM
from tests.fakes.vipu import let_ipu_fail
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.proxy.lifecycle import TrackerEntry
    from tests.fakes.proxylab import Lab
    from tests.integration.proxy.conftest import World


@pytest.fixture
def check(lab: Lab, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command beside the lab with these answers; what it says, then its last sentence."""
    settings.KUBECONFIG, settings.KUBE_CONTEXT, settings.NAMESPACE = lab.kubeconfig, "", SYSTEM
    settings.TRACKER_CONFIGMAP = lab.tracker
    settings.VIPU_CONTROLLERS = f"127.0.0.1:{lab.vipu_port}:{LABEL}"
    settings.VIPU_CONTROLLERS_PATH = ""

    async def run(*arguments: str, answers: str = "") -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(answers))
        out = io.StringIO()
        try:
            await asyncio.to_thread(call_command, "check_tracker", *arguments, stdout=out)
        except CommandError as error:
            return out.getvalue(), str(error)
        *lines, last = out.getvalue().splitlines()
        return "\n".join(lines), last

    return run


async def make(lab: Lab, name: str, size: int) -> None:
    async with VipuClient(f"127.0.0.1:{lab.vipu_port}") as vipu:
        await vipu.create_partition(CreateRequest(name, size))


async def test_a_partition_of_nobody_goes_only_where_its_id_is_written(
    lab: Lab, check: Callable[..., Any]
) -> None:
    assert await check() == ("", "Tracker and controllers agree.")
    await make(lab, "mine", 8)
    output, last = await check()
    where = f"mine on 127.0.0.1:{lab.vipu_port}"
    assert output == f"{where} (8 IPUs) has no entry; of no job.\n"
    assert last == "Tracker and controllers differ in 1 points."
    for answer in ("", "yes\n", "min\n"):
        assert (await check("--repair", answers=answer))[1] == last
        assert await lab.exists() == ["mine"]
    output, last = await check("--repair", answers="mine\n")
    assert output.endswith("  Removed.")
    assert last == "Tracker and controllers agree."
    assert await lab.exists() == []


async def test_a_partition_that_a_job_names_is_adopted_and_becomes_active(
    lab: Lab, check: Callable[..., Any]
) -> None:
    await apply_file(lab.client, CRD_FILE)
    await make(lab, "p-lost-0", 4)
    uid = await made_job(lab)
    await tell(lab, "p-lost-0", "released")
    assert (await check())[0].endswith("of no job.\n")
    await tell(lab, "p-lost-0", "active")
    output, last = await check("--repair", answers="p-lost-0\n")
    assert "the status of default/lost names it" in output
    assert output.endswith("  Adopted.")
    assert last == "Tracker and controllers agree."
    assert "p-lost-0 on 127.0.0.1" in (await check())[0]  # until the proxy has asked after it
    await sweep_once(lab.options)
    found = await stored(lab, uid)
    assert (found.phase, found.id, found.attempt, found.size) == (Phase.ACTIVE, "p-lost-0", 3, 4)
    assert await check() == ("", "Tracker and controllers agree.")
    await lab.client.delete(IPUJOBS, "lost", "default")


async def made_job(lab: Lab) -> str:
    body = ipujob("lost").ipus(4).without_finalizer().build()
    body["metadata"] = {"name": "lost", "namespace": "default"}
    return str((await lab.client.create(IPUJOBS, {**body, "status": {}}))["metadata"]["uid"])


async def tell(lab: Lab, partition: str, state: str) -> None:
    """Its third restart holds a partition, in the words of the job's status."""
    where = f"127.0.0.1:{lab.vipu_port}"
    held = {"instance": 0, "id": partition, "controller": where, "state": state}
    status = {"partitions": [held], "instances": [{"index": 0, "attempt": 3, "state": "Running"}]}
    await lab.client.patch(IPUJOBS, "lost", {"status": status}, "default", subresource="status")


async def stored(lab: Lab, uid: str) -> TrackerEntry:
    found = await lab.client.get(CONFIG_MAPS, lab.tracker, SYSTEM)
    ((key, text),) = found["data"].items()
    assert key.startswith(f"{uid}.0.")
    return decode_entry(key, text)


async def test_what_changed_before_the_answer_is_left_alone(world: World) -> None:
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    world.vipu.by_hand("other", 2)
    repair = Repair(proxy.store, proxy.fleet, lambda: world.now)
    ours = UntrackedPartition("v1:8090", "vipu-ctrl=v1", record.id, 4)
    with pytest.raises(UnknownPartition, match="by now"):
        await repair.remove(ours)
    with pytest.raises(UnknownPartition, match="by now"):
        await repair.adopt(ours, Claim("uid-else", "default", "else", 0, 0))
    other = UntrackedPartition("v1:8090", "vipu-ctrl=v1", "other", 2)
    with pytest.raises(UnknownPartition, match="default/job has p-job-default-0 by now"):
        await repair.adopt(other, Claim("uid-job", "default", "job", 0, 0))
    assert set(world.vipu.partitions) == {record.id, "other"}
    assert world.entry().id == record.id


async def test_one_off_the_list_is_adopted_with_the_label_of_its_nodes_or_not_at_all(
    world: World,
) -> None:
    proxy = await world.start()
    tomb = entry(1, phase=Phase.RELEASED, may_come=True, controller="v1:8090", label="")
    live = entry(0, controller="v1:8090")
    world.vipu.by_hand("other", 2)
    world.vipu.by_hand(live.id, 4)
    world.add_vipu("v2:8090")
    world.listed = "v2:8090:vipu-ctrl=v2"
    proxy.fleet.reload()

    async def found(*entries: TrackerEntry) -> UntrackedPartition:
        for one in entries:
            await proxy.store.write(lambda draft, one=one: draft.put(one))
        drift, views = await proxy.sweep.look()
        by_id = {one.id: one for one in strangers(drift, views, {}, world.entries())}
        return by_id["other"]

    repair = Repair(proxy.store, proxy.fleet, lambda: world.now)
    claim = Claim("uid-else", "default", "else", 0, 0)
    with pytest.raises(UnknownPartition, match="v1:8090 is off the list .* add it to the list"):
        await repair.adopt(await found(tomb), claim)
    for order in ((live, tomb), (tomb, live)):
        for one in (live, tomb):
            await proxy.store.write(lambda draft, one=one: draft.drop(one.key))
        assert (await found(*order)).label == "vipu-ctrl=v1"
    await repair.adopt(await found(), claim)
    (adopted,) = (one for one in world.entries() if one.uid == "uid-else")
    assert adopted.label == "vipu-ctrl=v1"


async def test_a_claim_counts_while_its_holder_has_nothing_else(world: World) -> None:
    proxy = await world.start()
    world.vipu.by_hand("before", 2)
    claims = {("v1:8090", "before"): Claim("uid-job", "default", "job", 0, 0)}

    async def claim() -> Claim | None:
        drift, views = await proxy.sweep.look()
        entries = proxy.store.tracker.entries.values()
        (found,) = strangers(drift, views, claims, entries)
        return found.claim

    assert await claim() is not None
    await proxy.service.ensure(request())
    assert await claim() is None
    await proxy.service.release("uid-job", 0)
    assert await claim() is not None


async def test_a_look_changes_nothing(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    before = world.maps.texts()
    drift, _ = await proxy.sweep.look()
    assert len(drift.lost) == 1
    assert world.maps.texts() == before


async def test_what_does_not_answer_and_what_cannot_be_read_is_said(
    lab: Lab, check: Callable[..., Any]
) -> None:
    body = {"metadata": {"name": lab.tracker}, "data": {"odd": "not an entry"}}
    await lab.client.create(CONFIG_MAPS, body | {"apiVersion": "v1", "kind": "ConfigMap"}, SYSTEM)
    await lab.stop_vipu()
    output, last = await check("--repair")
    assert f"127.0.0.1:{lab.vipu_port} does not answer" in output
    assert "odd: this value of the tracker is not an entry" in output
    assert last == "Tracker and controllers differ in 2 points."


async def test_each_difference_is_a_sentence(lab: Lab, check: Callable[..., Any]) -> None:
    states = {
        "lost": {"phase": Phase.ACTIVE},
        "faulty": {"phase": Phase.ACTIVE},
        "replaced": {"phase": Phase.ACTIVE, "size": 8},
        "healed": {"phase": Phase.ERROR, "reason": Reason.PARTITION_ERROR},
        "late": {"phase": Phase.RELEASED, "may_come": True},
        "back": {"phase": Phase.RELEASED, "may_come": True, "has_come": True},
    }
    where = f"127.0.0.1:{lab.vipu_port}"
    made = [
        entry(number, id=name, controller=where, **given)
        for number, (name, given) in enumerate(states.items())
    ]
    data = {one.key: encode_entry(one) for one in made}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": lab.tracker}}
    await lab.client.create(CONFIG_MAPS, body | {"data": data}, SYSTEM)
    for name in states.keys() - {"lost"}:
        await make(lab, name, 4)
    async with VipuClient(where) as vipu:
        for name in states.keys() - {"lost"}:
            await eventually(lambda name=name: is_usable(vipu, name))
    assert lab.vipu is not None
    let_ipu_fail(lab.vipu.controller, "faulty", "has a memory error")
    output, last = await check()
    back = f"back on {where} was removed after its release and is there; the proxy removes it again"
    strange = "replaced has 4 IPUs, not 8: it is not this job's"
    assert output.splitlines() == [
        f"lost on {where} no longer exists there; the proxy sets it to error.",
        f"faulty on {where} is in ERROR; a new attempt of its job resets it.",
        f"replaced on {where}: {strange}; the proxy sets it to error.",
        f"healed on {where} is ACTIVE again; the proxy sets it to active.",
        f"late on {where} was created after its release; the proxy removes it.",
        f"{back} if it is in ERROR, and leaves it to others if it is not.",
    ]
    assert last == "Tracker and controllers differ in 6 points."


async def is_usable(vipu: VipuClient, name: str) -> bool:
    return (await vipu.partition_status(name)).is_usable


async def test_what_is_only_removed_by_force_is_told_and_forced_by_a_person(world: World) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    repair = Repair(proxy.store, proxy.fleet, lambda: world.now)
    with pytest.raises(UnknownPartition):
        await repair.force(world.entry())
    world.vipu.needs_force = True
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: bool(proxy.service.find("uid-job", 0).release_error))
    record = proxy.service.find("uid-job", 0)
    assert record.release_error == "p-job-default-0: a device is in use; use force"
    assert (record.phase, record.reason) == ("releasing", "ReleaseRefused")
    await repair.force(world.entry())
    # The proxy knows it a moment after the tracker on the API server has it.
    await eventually(lambda: proxy.service.find("uid-job", 0).phase == "released")
    assert proxy.service.find("uid-job", 0).release_error == ""


async def test_the_command_forces_what_its_controller_refuses(
    lab: Lab, check: Callable[..., Any]
) -> None:
    made = entry(
        id="stuck",
        phase=Phase.RELEASING,
        controller=f"127.0.0.1:{lab.vipu_port}",
        reason=Reason.RELEASE_REFUSED,
        message="a device is in use",
    )
    body = {"metadata": {"name": lab.tracker}, "data": {made.key: encode_entry(made)}}
    await lab.client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **body}, SYSTEM)
    await make(lab, "stuck", 4)
    output, last = await check("--repair", answers="no\n")
    assert f"stuck on 127.0.0.1:{lab.vipu_port} is not removed: a device is in use." in output
    assert last == "Tracker and controllers differ in 1 points."
    output, last = await check("--repair", answers="stuck\n")
    assert output.endswith("  Removed; the proxy finishes the release.")
    assert last == "Tracker and controllers agree."
    assert await lab.exists() == []


def large_job(number: int) -> dict[str, Any]:
    name = f"job-{number:04}"
    held = {"instance": 0, "id": f"p-{name}", "controller": "v1:8090", "state": "active"}
    status = {"instances": [{"index": 0, "attempt": 2}], "partitions": [held]}
    pod = {"containers": [{"name": "main", "args": [f"{number:020000}"]}]}
    spec = {"ipusPerJobInstance": "4", "workers": {"template": {"spec": pod}}}
    meta = {"namespace": "default", "name": name, "uid": f"uid-{number}"}
    return {"metadata": meta, "spec": spec, "status": status}


async def test_thousands_of_jobs_are_read_in_little_memory() -> None:
    with memory_below(32_000_000):  # in full they are 45 MB
        claims = await read_claims(ManyObjects(2_000, large_job))
    assert len(claims) == 2_000
    assert claims["v1:8090", "p-job-0007"] == Claim("uid-7", "default", "job-0007", 0, 2)
    (job,) = await read_jobs(ManyObjects(1, large_job))
    assert job["spec"] == {"ipusPerJobInstance": "4"}  # what import_tracker compares


WRONG_TYPES = (
    {"status": "x"},
    {"status": {"instances": "x"}},
    {"status": {"instances": [1, {"index": [1]}]}},
    {"status": {"partitions": 7}},
    {"status": {"partitions": [None, {"instance": "0", "id": "p", "controller": "v1:8090"}]}},
    {"status": {"partitions": [{"id": ["p"], "controller": "v1:8090"}, {"id": "p"}]}},
    {"status": {"partitions": [{"instance": 10**30, "id": "p", "controller": "v1:8090"}]}},
    {"status": {"partitions": [{"instance": -1, "id": "p", "controller": "v1:8090"}]}},
    {"spec": ["x"]},
)


@pytest.mark.parametrize("wrong", WRONG_TYPES, ids=str)
async def test_what_is_stored_with_wrong_types_claims_nothing(wrong: dict[str, Any]) -> None:
    def stored(number: int) -> dict[str, Any]:
        return large_job(number) | (wrong if number == 0 else {})

    claims = await read_claims(ManyObjects(2, stored))
    claims.pop(("v1:8090", "p-job-0000"), None)  # kept where the entry itself is well-formed
    assert [*claims] == [("v1:8090", "p-job-0001")]
    jobs = await read_jobs(ManyObjects(2, stored))
    assert [job["metadata"]["name"] for job in jobs] == ["job-0000", "job-0001"]


async def test_in_the_proxys_pod_it_needs_the_right_that_the_page_grants(
    lab: Lab, check: Callable[..., Any], settings: Any, tmp_path: Path
) -> None:
    page = (Path(settings.BASE_DIR) / "docs/admin/vipu.md").read_text("utf-8")
    given = re.search(r"create clusterrole ipuhub-check --verb=(\w+) --resource=(\w+)\.(\S+)", page)
    assert given
    verb, resource, group = given.groups()
    rights = {"rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "check"}
    account = {"kind": "ServiceAccount", "namespace": SYSTEM, "name": "ipuhub-proxy"}
    cluster = DevCluster(tmp_path / "strict", authorization="rbac")
    await cluster.start()
    try:
        async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
            for file in (CRD_FILE, ACCESS_FILE):
                await apply_file(client, file)
            place = f"{SYSTEM}/ipuhub-proxy"
            settings.KUBECONFIG = str(
                await write_account_kubeconfig(client, cluster.kubeconfig, tmp_path, place)
            )
            assert "cannot list" in (await check())[1]
            meta = {"metadata": {"name": "check"}}
            await client.create(CLUSTER_ROLES, meta | rights)
            binding = meta | {"roleRef": role, "subjects": [account]}
            await client.create(CLUSTER_ROLE_BINDINGS, binding)
            assert await check() == ("", "Tracker and controllers agree.")
    finally:
        await cluster.stop()
