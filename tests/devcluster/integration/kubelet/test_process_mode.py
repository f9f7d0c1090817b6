"""Process mode with the real kubectl: commands, exec, attach, logs, ends, volumes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from devcluster.kubelet.options import StandInOptions
from devcluster.kubelet.standin import StandInNodes
from devcluster.processes.runtime import can_isolate
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from tests.devcluster.integration.conftest import Kubectl
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WAIT = ("--timeout=90s",)


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """kubectl on an embedded API with one node that runs processes."""
    server = DevCluster(tmp_path / "cluster", authorization="rbac")
    await server.start()
    options = StandInOptions(nodes=1, processes=tmp_path / "pods")
    async with KubeClient(load_config(str(server.kubeconfig))) as client:
        nodes = asyncio.create_task(StandInNodes(client, options).run())
        yield Kubectl(server.kubeconfig, tmp_path)
        nodes.cancel()
        await asyncio.gather(nodes, return_exceptions=True)
    await server.stop()


def pod(script: str, **changes: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    container |= changes.pop("container", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"app": "x"}},
        "spec": {"restartPolicy": "Never", "containers": [container], **changes},
    }


async def apply(kubectl: Kubectl, *manifests: dict[str, Any]) -> None:
    for manifest in manifests:
        await kubectl("apply", "-f", "-", stdin=orjson.dumps(manifest).decode())


async def wait_for(kubectl: Kubectl, path: str, value: str) -> None:
    await kubectl("wait", "pod/p", f"--for=jsonpath={{{path}}}={value}", *WAIT)


async def running(kubectl: Kubectl, script: str = "sleep 60", **changes: Any) -> None:
    await apply(kubectl, pod(script, **changes))
    await kubectl("wait", "pod/p", "--for=condition=Ready", *WAIT)


async def test_a_command_runs_and_its_log_and_exit_code_show(kubectl: Kubectl) -> None:
    await apply(kubectl, pod("echo out; echo err >&2; exit 3"))
    await wait_for(kubectl, ".status.phase", "Failed")
    log = await kubectl("logs", "p")
    assert sorted(log.split()) == ["err", "out"]
    path = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    assert await kubectl("get", "pod", "p", "-o", path) == "3"


async def test_exec_runs_beside_and_hands_streams_and_codes_through(kubectl: Kubectl) -> None:
    await running(kubectl, container={"env": [{"name": "COLOUR", "value": "blue"}]})
    result = await kubectl.run("exec", "p", "--", "sh", "-c", "echo $COLOUR; echo no >&2; exit 7")
    assert (result.code, result.out) == (7, "blue\n")
    assert result.err.startswith("no\n")
    assert "exit code 7" in result.err
    big = "line of some length\n" * 20_000
    assert await kubectl("exec", "-i", "p", "--", "cat", stdin=big) == big


async def test_exec_in_what_does_not_run_says_so(kubectl: Kubectl) -> None:
    body = pod("true")
    other = {"name": "beside", "image": "none", "command": ["sleep", "60"]}
    body["spec"]["containers"].append(other)
    await apply(kubectl, body)
    await wait_for(kubectl, ".status.containerStatuses[0].state.terminated.exitCode", "0")
    refused = await kubectl.run("exec", "p", "-c", "main", "--", "true")
    assert refused.code == 1
    assert 'container not found ("main")' in refused.err
    unknown = await kubectl.run("exec", "p", "-c", "other", "--", "true")
    assert "container other is not valid for pod p" in unknown.err


async def test_a_terminal_has_a_size_and_a_shell(kubectl: Kubectl) -> None:
    await running(kubectl)
    # kubectl sends the size beside the command, which may begin before it arrives.
    sized = "until stty size | grep -q 101; do sleep 0.02; done; stty size"
    command = (
        f"stty rows 33 cols 101; kubectl exec -it p -- sh -c 'test -t 0; echo tty=$?; {sized}'"
    )
    process = await asyncio.create_subprocess_exec(
        "script", "-qec", command, "/dev/null",
        env=kubectl.environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 90)
    assert b"tty=0" in out
    assert b"33 101" in out


async def test_logs_follow_to_the_end(kubectl: Kubectl) -> None:
    await running(kubectl, "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two")
    following = asyncio.create_task(kubectl("logs", "-f", "p"))
    await kubectl("exec", "p", "--", "touch", "go")
    assert await asyncio.wait_for(following, 90) == "one\ntwo\n"
    assert await kubectl("logs", "p", "--tail=1") == "two\n"
    stamped = (await kubectl("logs", "p", "--timestamps")).splitlines()
    assert [line.partition(" ")[2] for line in stamped] == ["one", "two"]
    since = stamped[1].partition(" ")[0]
    assert (await kubectl("logs", "p", f"--since-time={since}")).endswith("two\n")
    assert await kubectl("logs", "p", "--since-time=2999-01-01T00:00:00Z") == ""


async def test_attach_feeds_a_container_that_reads(kubectl: Kubectl) -> None:
    await running(kubectl, "read x; echo got $x", container={"stdin": True})
    out = await kubectl("attach", "-i", "p", stdin="hello\n")
    assert "got hello" in out
    await wait_for(kubectl, ".status.phase", "Succeeded")


async def test_the_log_before_a_restart_is_kept(kubectl: Kubectl) -> None:
    script = "if [ -e seen ]; then echo second; sleep 60; fi; touch seen; echo first; exit 1"
    await apply(kubectl, pod(script, restartPolicy="OnFailure"))
    await wait_for(kubectl, ".status.containerStatuses[0].restartCount", "1")
    await kubectl("wait", "pod/p", "--for=condition=Ready", *WAIT)
    assert await kubectl("logs", "p", "--previous") == "first\n"


async def test_a_deletion_ends_it_by_signal_and_then_by_force(kubectl: Kubectl) -> None:
    await running(kubectl, "trap 'echo bye; exit 0' TERM; echo trapped; sleep 60 & wait")
    following = await kubectl.start("logs", "-f", "p")
    assert following.stdout is not None
    assert await asyncio.wait_for(following.stdout.readline(), 90) == b"trapped\n"
    await kubectl("delete", "pod", "p")
    assert (await asyncio.wait_for(following.communicate(), 90))[0] == b"bye\n"
    await running(kubectl, "trap '' TERM; while :; do sleep 0.1; done")
    await kubectl("delete", "pod", "p", "--grace-period=1")


async def test_a_pod_has_a_host_name_and_a_temporary_folder_of_its_own(kubectl: Kubectl) -> None:
    if not can_isolate():
        pytest.fail("this test needs user namespaces")
    await running(kubectl)
    output = await kubectl("exec", "p", "--", "sh", "-c", "hostname; echo $HOSTNAME; mktemp")
    host, host_name, made = output.split()
    assert (host, host_name) == ("p", "p")
    uid = await kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    assert f"/{uid}/tmp/main/" in made


async def test_init_containers_run_first_and_volumes_are_shared(kubectl: Kubectl) -> None:
    if not can_isolate():
        pytest.fail("this test needs user namespaces")
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mpi"},
        "data": {"hostfile": "a slots=1\n", "run.sh": "#!/bin/sh\necho ran\n"},
    }
    mounts = [
        {"name": "mpi", "mountPath": "/etc/mpi-of-the-test"},
        {"name": "shared", "mountPath": "/var/shared-of-the-test"},
    ]
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HOSTS", "valueFrom": {"configMapKeyRef": {"name": "mpi", "key": "hostfile"}}},
        {"name": "BOTH", "value": "$(POD)-$(NOBODY)"},
    ]
    script = (
        "cat /etc/mpi-of-the-test/hostfile /var/shared-of-the-test/x; "
        "/etc/mpi-of-the-test/run.sh; echo $POD $HOSTS $BOTH; test -e /etc/passwd && echo whole"
    )
    init = {
        "name": "first",
        "image": "none",
        "command": ["sh", "-c", "echo made > /var/shared-of-the-test/x"],
        "volumeMounts": mounts,
    }
    body = pod(
        script,
        container={"volumeMounts": mounts, "env": env},
        initContainers=[init],
        volumes=[
            {"name": "mpi", "configMap": {"name": "mpi", "defaultMode": 0o755}},
            {"name": "shared", "emptyDir": {}},
        ],
    )
    await apply(kubectl, config, body)
    await wait_for(kubectl, ".status.phase", "Succeeded")
    assert (await kubectl("logs", "p")).splitlines() == [
        "a slots=1",
        "made",
        "ran",
        "p a slots=1 p-$(NOBODY)",
        "whole",
    ]


async def test_a_pod_speaks_to_the_api_as_its_account(kubectl: Kubectl) -> None:
    await running(kubectl)
    result = await kubectl.run("exec", "p", "--", "sh", "-c", "unset KUBECONFIG; kubectl get pods")
    assert result.code == 1
    account = 'User "system:serviceaccount:default:default" cannot list resource "pods"'
    assert account in result.err


async def test_a_missing_config_map_keeps_the_pod_waiting(kubectl: Kubectl) -> None:
    volumes = [{"name": "v", "configMap": {"name": "late"}}]
    await apply(kubectl, pod("true", volumes=volumes))
    event = "jsonpath={.items[?(@.reason=='FailedMount')].message}"
    await eventually(
        lambda: kubectl("get", "events", "-o", event),
        lambda output: 'configmap "late" not found' in output,
    )
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    await apply(kubectl, config)
    await wait_for(kubectl, ".status.phase", "Succeeded")


async def test_an_old_protocol_is_told_the_way_round(kubectl: Kubectl) -> None:
    await running(kubectl)
    kubectl.environment["KUBECTL_REMOTE_COMMAND_WEBSOCKETS"] = "false"
    refused = await kubectl.run("exec", "p", "--", "true")
    assert refused.code == 1
    assert "use kubectl 1.31 or newer" in refused.err
