"""The chart as Graphcore's pages install it, and its release grown to two of each leader.

One installation for all tests, in their order, on two real nodes. Images: see release.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.chart.policies import NEEDED
from tests.fakes.freeport import free_port
from tests.fakes.waiting import wait_until
from tests.realnodes import enforcement
from tests.realnodes.image import NAME as MPI_IMAGE
from tests.realnodes.pairs import Pairs, strangers
from tests.realnodes.published import (
    GOES,
    LEASES,
    NAME,
    NAMESPACE,
    PROXY,
    REPLICATED,
    STAYS,
    TAINT,
    held,
    is_called_ready,
    job,
    lead_on,
    leader,
    partition_phases,
    python_in,
    ready_pods,
    recorded,
    serving,
    stats,
    until,
    used,
)
from tests.realnodes.release import CHART, ROOT, Helm, end_jobs, load_images

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.realnodes.kit import RealCluster

WAIT = ("--wait", "--timeout", "120s")
WAITING = "until [ -e /dev/shm/go ]; do sleep 0.1; done"
PROGRAMS = "/public_examples/applications/tensorflow/cnns/training"
TRAIN = """
import os, sys, time
while not os.path.exists("/dev/shm/go"):
    time.sleep(0.1)
print("trained with", *sys.argv[1:3])
"""


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A V-IPU controller beside the cluster, of 32 IPUs; its port."""
    port, folder = free_port(), tmp_path_factory.mktemp("vipu")
    command = [sys.executable, "-m", "partitions.vipu.server.main", "--host", enforcement.MACHINE]
    command += ["--port", str(port), "--storage", str(folder / "state.json")]
    with _running(command, folder / "log"):
        yield port


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def engine(server: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Enforces NetworkPolicies from the start to the end; says what it lacks to do so."""
    missing = enforcement.missing_for_engine()
    with ExitStack() as stack:
        if not missing:
            stack.enter_context(enforcement.enforced(server, tmp_path_factory.mktemp("engine")))
        yield missing


@pytest.fixture(scope="module")
def helm(cluster: RealCluster, controller: int, engine: str) -> Iterator[Helm]:
    """The release `gc`, installed by the command of Graphcore's pages."""
    assert engine is not None
    load_images(cluster)
    helm = Helm(cluster, NAMESPACE)
    image = "localhost/ipuhub"
    command = ["install", "gc", CHART, "--set", f"vipuServerAddr={enforcement.MACHINE}"]
    command += ["--set", f"vipuServerPort={controller}", "--set", "vipuCLusterName=default"]
    command += ["--set", f"controller.image.repository={image}"]
    command += ["--set", f"vipuProxy.image.repository={image}"]
    helm.run(*command, "--create-namespace", "--take-ownership", *WAIT)
    yield helm
    cluster.kubectl(*TAINT[:3], f"{TAINT[-1]}-", check=False)
    helm.run("uninstall", "gc", "--no-hooks", check=False)
    end_jobs(cluster)
    # The jobs' workers sleep through their grace period.
    cluster.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def trial(command: str) -> dict[str, Any]:
    """The trial job with this command, on the node that stays."""
    made: dict[str, Any] = yaml.safe_load((ROOT / "examples/trial.yaml").read_text("utf-8"))
    made["spec"]["launcher"]["command"] = ["sh", "-c", command]
    pod = made["spec"]["workers"]["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": STAYS}
    return made


def example(name: str) -> dict[str, Any]:
    """An example, its container with the image that this cluster has."""
    made: dict[str, Any] = yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text("utf-8"))
    (container,) = made["spec"]["workers"]["template"]["spec"]["containers"]
    container |= {"image": MPI_IMAGE, "imagePullPolicy": "IfNotPresent"}
    return made


def test_the_commands_that_verify_an_installation_answer_as_printed(
    server: RealCluster, helm: Helm
) -> None:
    assert "ipujobs.graphcore.ai " in server.kubectl("get", "crd")
    name, space, revision, *_ = helm.run("ls").stdout.splitlines()[1].split()
    assert (name, space, revision) == ("gc", NAMESPACE, "1")
    assert " deployed " in helm.run("ls").stdout.replace("\t", " ")
    pods = server.kubectl("get", "pods", "-n", NAMESPACE)
    for component in ("controller-manager", "vipu-proxy", "webhook"):
        pattern = rf"^{NAME}-{component}-\S+ +1/1 +Running "
        assert re.search(pattern, pods, re.MULTILINE), pods
    roles = server.kubectl("get", "clusterrole", "-l", "component=metrics-reader")
    assert roles.splitlines()[1].startswith("gc-metrics-reader ")
    server.kubectl("get", "configmap", f"{NAME}-vipu-controllers", "-n", NAMESPACE)


@pytest.mark.usefixtures("helm")
def test_the_published_sample_runs_and_its_pod_asks_for_stats_and_query(
    server: RealCluster,
) -> None:
    sample = example("single-gcd-sample")
    pod = sample["spec"]["workers"]["template"]["spec"]
    pod["volumes"] = [{"name": "programs", "configMap": {"name": "programs"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "programs", "mountPath": PROGRAMS}]
    program = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "programs"}}
    server.create_anew(NAMESPACE, program | {"data": {"train.py": TRAIN}})
    left = ("ipujob", "ipujob-sample", "-n", NAMESPACE)  # by a try before this one
    server.kubectl("delete", *left, "--ignore-not-found", "--timeout=120s")
    output = server.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(sample))
    assert output == "ipujob.graphcore.ai/ipujob-sample created\n"
    until(server, "ipujob-sample", "Running")
    listed = server.kubectl("get", "ipujobs.graphcore.ai", "-n", NAMESPACE).splitlines()
    assert listed[0].split()[:2] == ["NAME", "STATUS"]
    assert listed[1].split()[:2] == ["ipujob-sample", "Running"]

    worker = "ipujob-sample-worker-0"
    ask = "import urllib.request as r; print(r.urlopen(%s, timeout=20).read().decode())"
    answers = json.loads(python_in(server, worker, ask % f"'http://{PROXY}/stats'"))
    assert answers == {
        NAMESPACE: {"used": 4, "available": 28},
        "total": {"used": 4, "available": 28},
    }
    for size, partitions in ((2, 14), (64, 0)):
        posted = f"r.Request('http://{PROXY}/query', b'{{\"size\":{size}}}', "
        posted += "{'Content-Type': 'application/json'})"
        found = json.loads(python_in(server, worker, ask % posted))
        assert found["numOfPartitions"] == partitions

    server.kubectl("exec", "-n", NAMESPACE, worker, "--", "touch", "/dev/shm/go")
    until(server, "ipujob-sample", "Completed")
    log = server.kubectl("logs", "-n", NAMESPACE, "ipujob-sample-launcher")
    assert "trained with --dataset=cifar-10 --synthetic-data" in log


@pytest.mark.usefixtures("helm")
def test_mpirun_reaches_two_workers_by_the_launcher_image(server: RealCluster) -> None:
    server.create_anew(NAMESPACE, example("mpi-hello"))
    until(server, "mpi-hello", "Completed")
    (launcher,) = server.get("pod", "mpi-hello-launcher", "-n", NAMESPACE)["spec"]["initContainers"]
    assert launcher["image"].startswith("localhost/ipuhub-launcher:")
    log = server.kubectl("logs", "-n", NAMESPACE, "mpi-hello-launcher")
    assert {line.split()[3] for line in log.splitlines() if "rank" in line} == {"0", "1"}


@pytest.mark.usefixtures("helm")
def test_an_edit_of_the_controllers_is_known_before_a_kubelet_has_to_show_it(
    server: RealCluster,
) -> None:
    """It may write the file after 90 s; the proxy is to know within 60."""
    installed = server.get("configmap", f"{NAME}-vipu-controllers", "-n", NAMESPACE)
    kept = {key: installed["metadata"][key] for key in ("name", "labels", "annotations")}
    other = f"{enforcement.MACHINE}:1:vipu-ctrl=other"

    def edit(controllers: str) -> None:
        """Edit as Helm: a field that another manager has set stops the upgrade below."""
        edited = installed | {"metadata": kept, "data": {"controllers.yaml": controllers}}
        manager = ("--server-side", "--field-manager=helm")
        server.kubectl("apply", "-n", NAMESPACE, *manager, "-f", "-", stdin=json.dumps(edited))

    def is_known() -> bool:
        log = server.kubectl("logs", "-n", NAMESPACE, f"deployment/{NAME}-vipu-proxy")
        return f"{enforcement.MACHINE}:1'" in log or f'{enforcement.MACHINE}:1"' in log

    before = installed["data"]["controllers.yaml"]
    edit(f"{before}\n{other}")
    try:
        wait_until(is_known, "the proxy knows the other controller", seconds=60)
    finally:
        edit(before)


@pytest.mark.usefixtures("helm")
def test_an_upgrade_makes_two_of_each_and_the_service_has_one(
    server: RealCluster, helm: Helm
) -> None:
    server.kubectl(*TAINT)  # the database cannot be told another way where to run
    helm.run("upgrade", "gc", CHART, "--reuse-values", *REPLICATED, *WAIT)
    assert len(ready_pods(server)) == 2
    (first,) = wait_until(lambda: serving(server), "a proxy serves")
    assert first in ready_pods(server)
    assert wait_until(lambda: stats(server), "/stats")


def test_every_pair_of_pod_and_port_is_open_as_kubernetes_documents(
    server: RealCluster, helm: Helm, engine: str
) -> None:
    if engine:
        pytest.skip(f"no engine of NetworkPolicies without {engine}")
    operator = next(iter(ready_pods(server, "controller-manager")))
    with strangers(server, NAMESPACE, operator):
        pairs = Pairs(server, NAMESPACE, "gc")
        want = pairs.documented()
        with pairs.listening(), suppress(AssertionError):
            wait_until(lambda: pairs.tried() == want, "the policies are enforced", 30)
    print(f"{len(want)} pairs, {sum(want.values())} of them open")
    assert {key: is_open for key, is_open in pairs.seen.items() if is_open != want[key]} == {}
    assert set(pairs.seen) == set(want)
    for source, to, port in NEEDED:
        assert want.get((source, to, port), True), (source, to, port)


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("grace", ["30", "0"])
def test_another_takes_over_when_the_leader_goes(grace: str, server: RealCluster) -> None:
    wait_until(lambda: len(ready_pods(server)) == 2, "both ready")
    (first,) = wait_until(lambda: serving(server), "a proxy serves")
    began = time.monotonic()
    server.kubectl(
        "delete", "pod", first, "-n", NAMESPACE, f"--grace-period={grace}", "--wait=false"
    )
    wait_until(lambda: serving(server) not in ([], [first]), "another serves")
    assert wait_until(lambda: stats(server), "/stats")
    print(f"another proxy serves after {time.monotonic() - began:.1f} s (grace {grace} s)")


@pytest.mark.usefixtures("helm")
def test_an_upgrade_that_changes_the_pods_ends(server: RealCluster, helm: Helm) -> None:
    change = ("--set", "vipuProxy.settings.IPUHUB_LOG_LEVEL=debug")
    helm.run("upgrade", "gc", CHART, "--reuse-values", *change, *WAIT)
    assert len(wait_until(lambda: serving(server), "a proxy serves")) == 1
    assert wait_until(lambda: stats(server), "/stats")


@pytest.mark.usefixtures("helm")
def test_the_standbys_go_on_when_the_leaders_node_dies(server: RealCluster) -> None:
    lead_on(server, GOES)
    server.create_anew(NAMESPACE, trial(WAITING))
    before = until(server, "trial", "Running")
    uid = before["metadata"]["uid"]
    assert partition_phases(server, uid) == {"active"}
    dead = {component: leader(server, component) for component in LEASES}
    heirs = {
        component: pod
        for component in LEASES
        for pod, node in ready_pods(server, component).items()
        if node == STAYS
    }
    began = time.monotonic()
    with server.without_node(2):
        for component, pod in heirs.items():
            wait_until(lambda one=component, to=pod: leader(server, one) == to, f"{pod} leads")
            print(f"{component}: another leads after {time.monotonic() - began:.1f} s")
        # Kubernetes learns of the node's end from nobody but the clock: not yet. The dead pod is
        # Ready to it, and the Service would send every other request there.
        wait_until(lambda: serving(server) == [heirs["vipu-proxy"]], "the Service finds the heir")
        print(f"the Service finds the new leader after {time.monotonic() - began:.1f} s")
        assert is_called_ready(server, dead["vipu-proxy"])
        assert held(server, uid) == 2
        # Jobs of the tests before may still hold theirs, and give them back meanwhile.
        wait_until(lambda: used(server) == held(server), "/stats says what the tracker holds")
        assert partition_phases(server, uid) == {"active"}

        now = job(server, "trial")
        assert now["status"].get("instances") == before["status"].get("instances")
        server.kubectl("exec", "-n", NAMESPACE, "trial-launcher", "--", "touch", "/dev/shm/go")
        ended = until(server, "trial", "Completed")
        wait_until(lambda: "active" not in partition_phases(server, uid), "its partition free")
        wait_until(lambda: recorded(server, uid) == "Completed", "its end recorded")
        print(f"the job is over and recorded after {time.monotonic() - began:.1f} s")
        assert int(ended["status"].get("restartCount", 0)) == 0
    # Who comes back stands by.
    wait_until(lambda: len(ready_pods(server)) == 2, "both proxies ready")
    assert serving(server) == [heirs["vipu-proxy"]]
    assert {component: leader(server, component) for component in LEASES} == heirs
