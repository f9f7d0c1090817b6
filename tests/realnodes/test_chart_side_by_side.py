"""Two releases of the chart in one cluster, each for namespaces of its own.

`left` has its jobs placed by a scheduler of its own. `right` records usage, in a database on a
volume. Neither has a dashboard.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.waiting import wait_until
from tests.realnodes.image import NAME as MPI_IMAGE
from tests.realnodes.image import SCHEDULER_REPOSITORY, build_scheduler_image
from tests.realnodes.release import (
    CHART,
    ROOT,
    Helm,
    end_jobs,
    load_images,
    make_restricted,
    refused_pods,
    rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster


@dataclass(frozen=True)
class Release:
    """A release, the namespace it is installed in, and the namespace whose jobs it runs."""

    name: str
    helm: Helm
    team: str

    def tracker(self, cluster: RealCluster) -> dict[str, Any]:
        """The partitions that this release has at its V-IPU controller."""
        found = cluster.find("configmap", "ipu-partitions-tracker", "-n", self.helm.namespace)
        data = (found or {}).get("data") or {}
        return {key: json.loads(entry) for key, entry in data.items()}

    def has_partition_for(self, cluster: RealCluster, job: str) -> bool:
        """Return whether it holds an active partition for the job of this UID."""
        entries = self.tracker(cluster).items()
        return any(
            key.startswith(f"{job}.") and entry["phase"] == "active" for key, entry in entries
        )


CLASS = "ipuhub-test-local"
SCHEDULER = "ipuhub-scheduler"
SUBMITTED = "ipuhub-test/submitted"
# The IPUs of `left` are reached from one node only.
NEAR, FAR, REACHES_LEFT = "node-1", "node-2", "ipuhub-test/reaches-left"


@pytest.fixture(scope="module")
def volume(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of one node as a volume, which unlike a host path gets the pod's `fsGroup`."""
    node = cluster.get("nodes")["items"][0]["metadata"]["labels"]["kubernetes.io/hostname"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": CLASS},
        "spec": {
            "storageClassName": CLASS,
            "capacity": {"storage": "64Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(tmp_path_factory.mktemp("database"))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    yield
    cluster.kubectl("delete", "pv", CLASS, "--timeout=60s")


@pytest.fixture(scope="module")
def releases(cluster: RealCluster, volume: None) -> Iterator[tuple[Release, Release]]:
    """`left` and `right`; the second one deletes what is left when it is uninstalled."""
    load_images(cluster)
    cluster.load(build_scheduler_image())
    cluster.kubectl("label", "node", NEAR, f"{REACHES_LEFT}=yes")
    made = []
    for name in ("left", "right"):
        team, helm = f"team-{name}", Helm(cluster, f"ipuhub-{name}")
        cluster.kubectl("create", "namespace", team)
        make_restricted(cluster, helm.namespace)
        values = {
            "controller.namespaces": [team],
            "vipuServer.enabled": True,
            "crds.enabled": name == "left",
            "uninstall.drain": name == "right",
            "database.enabled": name == "right",
            "database.storageClassName": CLASS,
            "web.enabled": False,
        }
        if name == "left":
            values |= {
                "vipuServer.nodeLabel": f"{REACHES_LEFT}=yes",
                "extendedScheduler.enabled": True,
                "extendedScheduler.image.repository": SCHEDULER_REPOSITORY,
            }
        sets = [
            word
            for key, value in values.items()
            for word in ("--set-json", f"{key}={json.dumps(value)}")
        ]
        # The CRD stays when a release goes, and is then still the other release's.
        options = ("--take-ownership", *sets, "--wait", "--timeout", "150s")
        helm.run("install", name, CHART, *options)
        made.append(Release(name, helm, team))
    yield made[0], made[1]
    for release in made:
        release.helm.run("uninstall", release.name, "--no-hooks", check=False)
    end_jobs(cluster)
    for release in made:
        names = (release.team, release.helm.namespace)
        cluster.kubectl("delete", "namespace", *names, "--timeout=120s")
    cluster.kubectl("label", "node", NEAR, f"{REACHES_LEFT}-")


def status(cluster: RealCluster, release: Release) -> dict[str, Any]:
    found = cluster.find("ipujob", "trial", "-n", release.team)
    return dict((found or {}).get("status") or {})


def uid(cluster: RealCluster, release: Release, job: str = "trial") -> str:
    return str(cluster.get("ipujob", job, "-n", release.team)["metadata"]["uid"])


def test_each_runs_the_jobs_of_its_namespaces_with_partitions_of_its_own(
    cluster: RealCluster, releases: tuple[Release, Release]
) -> None:
    text = (ROOT / "examples/trial.yaml").read_text(encoding="utf-8")
    for release in releases:
        longer = text.replace("sleep 30", "sleep 900")
        if release.name == "left":
            longer = longer.replace("localhost/ipuhub:0.1.0", MPI_IMAGE)
        cluster.kubectl("apply", "-n", release.team, "-f", "-", stdin=longer)
    for release in releases:
        wait_until(
            lambda here=release: status(cluster, here).get("launcherStatus") == "Running",
            f"the job of {release.name} runs",
        )
    left, right = releases
    for release, other in ((left, right), (right, left)):
        assert release.has_partition_for(cluster, uid(cluster, release))
        assert not other.has_partition_for(cluster, uid(cluster, release))


def test_mpirun_starts_the_trial_job_on_both_workers_where_the_image_has_it(
    cluster: RealCluster, releases: tuple[Release, Release]
) -> None:
    log = ("logs", "trial-launcher", "-n", releases[0].team)
    wait_until(lambda: cluster.kubectl(*log).count("hello") == 2, "both ranks")
    assert sorted(cluster.kubectl(*log).splitlines()) == [
        "hello from rank 0 of 2",
        "hello from rank 1 of 2",
    ]


@pytest.fixture
def submitting(cluster: RealCluster) -> Iterator[None]:
    """Delete what the test submits, also if it fails: it may be tried again."""
    yield
    cluster.kubectl("delete", "pods", "-n", "default", "-l", SUBMITTED, "--grace-period=1")


@contextmanager
def without_proxy(cluster: RealCluster, release: Release) -> Iterator[None]:
    """Have no V-IPU Proxy in this release meanwhile."""
    where = (f"deployment/{release.name}-ipu-operator-vipu-proxy", "-n", release.helm.namespace)
    pods = ("pods", *where[1:], "-l", "app.kubernetes.io/component=vipu-proxy")
    cluster.kubectl("scale", *where, "--replicas=0")
    try:
        wait_until(lambda: not cluster.get(*pods)["items"], "no proxy")
        yield
    finally:
        cluster.kubectl("scale", *where, "--replicas=1")
        cluster.kubectl("rollout", "status", *where, "--timeout=90s")


def submit(cluster: RealCluster, pod: str, labels: dict[str, str], node: str) -> None:
    """Create a pod for the second scheduler, which only one node may run."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod, "labels": {**labels, SUBMITTED: "yes"}},
        "spec": {
            "schedulerName": SCHEDULER,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": MPI_IMAGE, "command": ["sleep", "60"]}],
        },
    }
    cluster.create_anew("default", body)


def placed(cluster: RealCluster, pod: str, namespace: str) -> tuple[str, str]:
    """The node of a pod, and the scheduler that chose it; empty: it has none yet."""
    about = f"reason=Scheduled,involvedObject.name={pod}"
    found = cluster.get("events", "-n", namespace, "--field-selector", about)["items"]
    node = cluster.get("pod", pod, "-n", namespace)["spec"].get("nodeName", "")
    return (node, found[-1]["reportingComponent"]) if found else ("", "")


def why_pending(cluster: RealCluster, pod: str) -> str:
    conditions = cluster.get("pod", pod, "-n", "default")["status"].get("conditions") or ()
    return " ".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")


@pytest.mark.usefixtures("submitting")
def test_the_second_scheduler_places_jobs_by_their_partition_and_without_the_proxy(
    cluster: RealCluster, releases: tuple[Release, Release]
) -> None:
    for release, scheduler in zip(releases, (SCHEDULER, "default-scheduler"), strict=True):
        selector = "graphcore.ai/ipujob-name=trial"
        pods = cluster.get("pods", "-n", release.team, "-l", selector)["items"]
        assert [pod["spec"]["schedulerName"] for pod in pods] == [scheduler] * 3
        nodes = {placed(cluster, pod["metadata"]["name"], release.team) for pod in pods}
        assert {by for _, by in nodes} == {scheduler}
        assert release.name == "right" or {node for node, _ in nodes} == {NEAR}

    # Without a selector of the operator: only the proxy knows where the job's IPUs are.
    labels = {"graphcore.ai/ipujob-uid": uid(cluster, releases[0]), "graphcore.ai/instance": "0"}
    for node in (NEAR, FAR):
        submit(cluster, f"on-{node}", labels, node)
    wait_until(lambda: placed(cluster, f"on-{NEAR}", "default") == (NEAR, SCHEDULER), "placed")
    refusal = f"1 node(s) without the label {REACHES_LEFT}=yes of the V-IPU controller"
    wait_until(lambda: refusal in why_pending(cluster, f"on-{FAR}"), "the proxy's refusal")

    # While it does not answer, nothing waits for it.
    with without_proxy(cluster, releases[0]):
        submit(cluster, "alone", labels, FAR)
        wait_until(lambda: placed(cluster, "alone", "default") == (FAR, SCHEDULER), "placed alone")
    assert releases[0].has_partition_for(cluster, uid(cluster, releases[0]))


def test_a_database_without_a_dashboard_is_migrated_and_keeps_its_data_on_its_volume(
    cluster: RealCluster, releases: tuple[Release, Release]
) -> None:
    right = releases[1]
    pod = ("pod", "right-ipu-operator-database-0", "-n", right.helm.namespace)
    of_job = f"from usage_podlifetime where job_uid = '{uid(cluster, right)}'"

    def recorded(columns: str) -> list[str]:
        query = f"select {columns} {of_job} order by uid"
        return rows(cluster, right.name, right.helm.namespace, query)

    wait_until(lambda: len(recorded("uid")) == 3, "the job's pods are recorded")
    before, old = recorded("uid, created_at"), cluster.get(*pod)["metadata"]["uid"]
    cluster.kubectl("delete", *pod)
    wait_until(
        lambda: (cluster.find(*pod) or {"metadata": {"uid": old}})["metadata"]["uid"] != old,
        "a new pod",
    )
    cluster.kubectl("wait", *pod, "--for=condition=Ready", "--timeout=90s")
    assert recorded("uid, created_at") == before
    # It did not wait for its clients until it was killed: that is a minute without a database.
    assert "was not properly shut down" not in cluster.kubectl("logs", *pod[1:])
    # Of what is created from now on: the prober records again.
    trial = (ROOT / "examples/trial.yaml").read_text(encoding="utf-8")
    later = trial.replace("name: trial", "name: later")
    cluster.kubectl("apply", "-n", right.team, "-f", "-", stdin=later)
    of_later = f"from usage_podlifetime where job_uid = '{uid(cluster, right, 'later')}'"
    wait_until(
        lambda: len(rows(cluster, right.name, right.helm.namespace, f"select uid {of_later}")) == 3,
        "the pods of a job are recorded that began after the database was replaced",
    )
    cluster.kubectl("delete", "ipujob", "later", "-n", right.team, "--timeout=90s")


def test_a_wrong_job_is_refused_by_the_webhooks_of_either(
    cluster: RealCluster, releases: tuple[Release, Release]
) -> None:
    text = (ROOT / "examples/trial.yaml").read_text(encoding="utf-8")
    wrong = text.replace('modelReplicas: "2"', 'modelReplicas: "none"').replace("trial", "wrong")
    for release in releases:
        done = cluster.try_kubectl("apply", "-n", release.team, "-f", "-", stdin=wrong)
        assert done.returncode != 0, release.name
        assert "modelReplicas" in done.stderr
        # Helm's own test sends its wrong job to a namespace of the release.
        release.helm.run("test", release.name, "--timeout", "60s")


def test_one_that_is_uninstalled_deletes_its_jobs_and_leaves_the_others_alone(
    cluster: RealCluster, releases: tuple[Release, Release]
) -> None:
    left, right = releases
    before = (uid(cluster, left), status(cluster, left))
    right.helm.run("uninstall", right.name, "--wait", "--timeout", "120s")
    assert cluster.find("ipujob", "trial", "-n", right.team) is None
    assert (uid(cluster, left), status(cluster, left)) == before
    assert left.has_partition_for(cluster, before[0])
    for release in releases:
        assert refused_pods(cluster, release.helm.namespace) == []
