"""The Helm chart on real nodes: installed as its pages say, used, upgraded, and removed.

All tests share one installation, in their order; `make images` builds the images, named by
IPUHUB_TEST_IMAGES (default dist/images).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.times import read_time
from partitions.proxy.nodes.visibility import RESOURCE
from tests.fakes.waiting import wait_until
from tests.realnodes.launcherstart import run_init_container
from tests.realnodes.readers import reading
from tests.realnodes.release import (
    CHART,
    COMPONENTS,
    ROOT,
    Helm,
    component_of,
    end_jobs,
    load_images,
    local_volume,
    make_restricted,
    refused_pods,
    seconds_until_ready,
)
from tests.realnodes.reviews import reviewing
from tests.realnodes.trialrelease import (
    NAME,
    NAMESPACE,
    Undisturbed,
    authority,
    certificate_in,
    counted,
    in_database,
    job_status,
    own_pods,
    passwords,
    served_certificate,
    soon_over,
    uids_of_pods,
    until_new_pods_work,
    webhook_secret,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster

TRIAL = ("-f", f"{CHART}/trial-values.yaml")
# Its vipu-server keeps the partitions of the jobs when it is replaced.
CLASS = "trial-vipu"
KEPT = ("--set", f"vipuServer.persistence.enabled=true,vipuServer.persistence.storageClass={CLASS}")
SLOW_MACHINE = 3  # times as long as promised: two cores, and other suites beside
# Those that work with the API server, by an account of their own.
WITH_RIGHTS = {"controller-manager", "vipu-proxy", "webhook", "prober", "monitor", "web"}


@pytest.fixture(scope="module")
def helm(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    """The release `ipuhub`, installed by the values for a trial."""
    load_images(cluster)
    make_restricted(cluster, NAMESPACE)
    volume = local_volume(CLASS, tmp_path_factory.mktemp("volume"))
    cluster.kubectl("create", "-f", "-", stdin=volume)
    helm = Helm(cluster, NAMESPACE)
    options = ("--create-namespace", "--take-ownership", "--wait", "--timeout", "90s")
    helm.run("install", "ipuhub", CHART, *TRIAL, *KEPT, *options)
    yield helm
    helm.run("uninstall", "ipuhub", "--no-hooks", check=False)
    end_jobs(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    cluster.kubectl("delete", "-f", "-", stdin=volume)


def running_since(cluster: RealCluster) -> str:
    """The time from which on the trial job runs; empty: it does not."""
    conditions = job_status(cluster).get("conditions") or ()
    runs = (each for each in conditions if (each["type"], each["status"]) == ("Running", "True"))
    return next((each["lastTransitionTime"] for each in runs), "")


def fetch(pod: dict[str, Any], path: str, token: str) -> tuple[int, str]:
    """Ask a pod itself, at the port with its pages: `health`, or else `http`."""
    (container,) = pod["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    port = ports.get("health", ports.get("http"))
    request = urllib.request.Request(
        f"http://{pod['status']['podIP']}:{port}{path}",
        headers={"Authorization": f"Bearer {token}", "Host": "localhost"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_all_of_it_is_ready_and_hardened(cluster: RealCluster, helm: Helm) -> None:
    pods = own_pods(cluster)
    assert {component_of(pod) for pod in pods} == COMPONENTS
    for pod in pods:
        statuses = pod["status"]["containerStatuses"]
        assert all(status["ready"] for status in statuses), pod["metadata"]["name"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        for container in pod["spec"]["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["allowPrivilegeEscalation"] is False
    listed = helm.run("ls").stdout
    assert "deployed" in listed
    assert "admin-password" in helm.run("get", "notes", "ipuhub").stdout


def test_the_namespace_of_the_release_takes_restricted_pods_only(
    cluster: RealCluster, helm: Helm
) -> None:
    # As the pods of jobs do by default: they belong into namespaces of their own.
    pod = {"containers": [{"name": "main", "image": "none"}], "hostNetwork": True}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wide"}, "spec": pod}
    where = ("create", "-n", NAMESPACE, "--dry-run=server", "-f", "-")
    done = cluster.try_kubectl(*where, stdin=json.dumps(body))
    assert 'violates PodSecurity "restricted' in done.stderr
    assert "hostNetwork=true" in done.stderr


def test_each_component_is_ready_again_after_a_restart(cluster: RealCluster, helm: Helm) -> None:
    print(f"all at once: {seconds_until_ready(own_pods(cluster))}")
    again = []
    # Without a volume the database's end would be that of its data.
    for component in sorted(COMPONENTS - {"database"}):
        where = (f"deployment/{NAME}-{component}", "-n", NAMESPACE)
        cluster.kubectl("rollout", "restart", *where)
        cluster.kubectl("rollout", "status", *where, "--timeout=90s")
        (pod,) = (
            pod
            for pod in own_pods(cluster)
            if component_of(pod) == component and "deletionTimestamp" not in pod["metadata"]
        )
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        again.append(pod)
    took = seconds_until_ready(again)
    print(f"one by one: {took}")
    assert max(took.values()) <= 10 * SLOW_MACHINE, took


def test_no_reader_of_the_dashboard_is_refused_while_it_is_replaced(
    cluster: RealCluster, helm: Helm
) -> None:
    where = (f"deployment/{NAME}-web", "-n", NAMESPACE)
    with reading(cluster, f"{NAME}-web", NAMESPACE, "/login/") as answers:
        cluster.kubectl("rollout", "restart", *where)
        cluster.kubectl("rollout", "status", *where, "--timeout=120s")
        wait_until(
            lambda: [component_of(pod) for pod in own_pods(cluster)].count("web") == 1,
            "the old pod gone",
        )
    assert set(answers.found) == {"200"}, answers.found


def test_the_names_of_graphcores_chart(cluster: RealCluster, helm: Helm) -> None:
    cluster.kubectl("get", "crd", "ipujobs.graphcore.ai")
    for kind, name in (
        ("deployment", f"{NAME}-controller-manager"),
        ("deployment", f"{NAME}-vipu-proxy"),
        ("service", f"{NAME}-vipu-proxy"),
        ("configmap", f"{NAME}-vipu-controllers"),
    ):
        cluster.kubectl("get", kind, name, "-n", NAMESPACE)
    assert "ipuhub-metrics-reader" in cluster.kubectl(
        "get", "clusterrole", "-l", "component=metrics-reader"
    )


def test_the_trial_job_runs_and_is_counted(cluster: RealCluster, helm: Helm) -> None:
    text = (ROOT / "examples/trial.yaml").read_text(encoding="utf-8")
    longer = text.replace("sleep 30", "sleep 900")  # it is to outlive the upgrade below
    cluster.kubectl("apply", "-n", "default", "-f", "-", stdin=longer)
    wait_until(lambda: job_status(cluster).get("launcherStatus") == "Running", "the job runs")
    pods = cluster.get("pods", "-n", "default", "-l", "graphcore.ai/ipujob-name=trial")["items"]
    assert len(pods) == 3
    job = cluster.get("ipujob", "trial", "-n", "default")
    began = read_time(job["metadata"]["creationTimestamp"])
    wait_until(lambda: running_since(cluster), "the job says so")
    assert (read_time(running_since(cluster)) - began).total_seconds() <= 10 * SLOW_MACHINE
    assert job["metadata"]["annotations"]["ipuhub.io/created-by"]
    # From a pod of the cluster, by the Service, as Graphcore's pages show it.
    script = (
        "import urllib.request as r; "
        f"print(r.urlopen('http://{NAME}-vipu-proxy.{NAMESPACE}/stats').read().decode())"
    )
    launcher = next(
        pod["metadata"]["name"] for pod in pods if "launcher" in pod["metadata"]["name"]
    )
    output = cluster.kubectl("exec", "-n", "default", launcher, "--", "python3", "-c", script)
    assert '"used":2' in output
    cluster.kubectl("get", "configmap", "ipu-partitions-tracker", "-n", NAMESPACE)


def test_the_launcher_opens_the_gate_in_2_s_of_a_tenth_of_a_cpu(
    cluster: RealCluster, helm: Helm
) -> None:
    # The fastest of a few: others of this machine take their time of the same CPU.
    found = []
    while not found or (min(found) > 2 and len(found) < 3):
        ran = run_init_container(cluster, "default", "trial-launcher")
        assert ran.limit == "100m"
        found.append(ran.from_creation)
    print(f"init container: {found}")
    assert min(found) <= 2 * SLOW_MACHINE, found


def test_only_whom_the_api_server_allows_reads_metrics(cluster: RealCluster, helm: Helm) -> None:
    token = cluster.kubectl("create", "token", "default", "-n", "default").strip()
    found = {component_of(pod): pod for pod in own_pods(cluster)}
    probes = {name: found[name] for name in WITH_RIGHTS}
    answers = {name: fetch(pod, "/metrics", token)[0] for name, pod in probes.items()}
    assert answers == dict.fromkeys(WITH_RIGHTS, 403)


def test_the_dashboard_shows_the_job_its_logs_and_who_works(
    cluster: RealCluster, helm: Helm
) -> None:
    (pod,) = (pod for pod in own_pods(cluster) if component_of(pod) == "web")
    command = ("ipuhub", "make_api_token", "admin")
    where = ("-n", NAMESPACE, pod["metadata"]["name"])
    token = cluster.kubectl("exec", *where, "--", *command).split()[0]
    uid = cluster.get("ipujob", "trial", "-n", "default")["metadata"]["uid"]
    for path in ("components", "fleet", "partitions", f"jobs/{uid}/logs"):
        status, body = fetch(pod, f"/api/v1/{path}", token)
        assert status == 200, (path, body)


def test_operator_and_proxy_log_the_job_by_its_uid(cluster: RealCluster, helm: Helm) -> None:
    uid = cluster.get("ipujob", "trial", "-n", "default")["metadata"]["uid"]
    for component, event in (("controller-manager", "event"), ("vipu-proxy", "partition")):
        log = cluster.kubectl("logs", "-n", NAMESPACE, f"deployment/{NAME}-{component}")
        lines = [json.loads(line) for line in log.splitlines()]
        entries = [line for line in lines if line.get("job_uid") == uid]
        assert event in {line["event"] for line in entries}, (component, lines[-5:])
        assert {line["job"] for line in entries if "job" in line} == {"default/trial"}


def test_helm_test_passes(cluster: RealCluster, helm: Helm) -> None:
    output = helm.run("test", "ipuhub", "--timeout", "60s").stdout
    assert "Succeeded" in output


def test_a_wrong_job_is_refused(cluster: RealCluster, helm: Helm) -> None:
    text = (ROOT / "examples/trial.yaml").read_text(encoding="utf-8")
    wrong = text.replace('modelReplicas: "2"', 'modelReplicas: "none"').replace("trial", "wrong")
    done = cluster.try_kubectl("apply", "-n", "default", "-f", "-", stdin=wrong)
    assert done.returncode != 0
    assert "modelReplicas" in done.stderr


def test_a_certificate_that_ends_soon_is_renewed_without_a_refused_review(
    cluster: RealCluster, helm: Helm
) -> None:
    before, due = authority(cluster), soon_over(webhook_secret(cluster))
    secret = ("secret", f"{NAME}-webhook", "-n", NAMESPACE)
    with reviewing(cluster, "default") as reviews:
        cluster.kubectl("patch", *secret, "--type=merge", "-p", json.dumps({"data": due}))
        wait_until(lambda: served_certificate(cluster) == certificate_in(due), "it is served")
        reviews.until_more()
        wait_until(lambda: served_certificate(cluster) != certificate_in(due), "it is renewed")
    print(f"{reviews.judged} reviews")
    assert served_certificate(cluster) == certificate_in(webhook_secret(cluster))
    assert authority(cluster) == before


def test_an_upgrade_that_replaces_every_process_leaves_certificate_secrets_and_running_jobs(
    cluster: RealCluster, helm: Helm
) -> None:
    wait_until(lambda: len(counted(cluster)) == 3, "the job's pods are recorded")
    before, pods = Undisturbed.now(cluster), uids_of_pods(cluster)
    assert before.authority
    assert len(before.partitions) == 1
    assert all(row.endswith("|going") for row in before.usage)
    replicas = ("--set", "controller.replicas=2", "--set", "admissionWebhooks.replicas=2")
    # In the environment of each process, so that each is replaced, as by another version.
    changed = (*replicas, "--set", "settings.IPUHUB_LOG_LEVEL=debug")
    helm.run("upgrade", "ipuhub", CHART, *TRIAL, *KEPT, *changed, "--wait", "--timeout", "120s")
    until_new_pods_work(cluster, pods)
    assert Undisturbed.now(cluster) == before
    assert cluster.get("pdb", f"{NAME}-webhook", "-n", NAMESPACE)["spec"]["minAvailable"] == 1


def test_a_rollback_leaves_them_as_well(cluster: RealCluster, helm: Helm) -> None:
    before, pods = Undisturbed.now(cluster), uids_of_pods(cluster)
    operator = ("deployment", f"{NAME}-controller-manager", "-n", NAMESPACE)
    assert cluster.get(*operator)["spec"]["replicas"] == 2
    helm.run("rollback", "ipuhub", "1", "--wait", "--timeout", "120s")
    assert cluster.get(*operator)["spec"]["replicas"] == 1
    until_new_pods_work(cluster, pods)
    assert Undisturbed.now(cluster) == before


def test_a_certificate_that_is_lost_is_made_again_below_the_same_authority(
    cluster: RealCluster, helm: Helm
) -> None:
    before, old = authority(cluster), webhook_secret(cluster)
    gone = '{"data": {"tls.crt": null, "tls.key": null}}'
    secret = ("secret", f"{NAME}-webhook", "-n", NAMESPACE)
    cluster.kubectl("patch", *secret, "--type=merge", "-p", gone)
    made = wait_until(lambda: webhook_secret(cluster).get("tls.crt"), "made again")
    assert made != old["tls.crt"]
    assert authority(cluster) == before
    test_a_wrong_job_is_refused(cluster, helm)


def test_ipus_that_a_node_shows_are_given_to_a_pod_and_counted_for_nobody(
    cluster: RealCluster, helm: Helm
) -> None:
    usage = counted(cluster)
    options = ("--set", "ipuVisibility.enabled=true")
    helm.run("upgrade", "ipuhub", CHART, *TRIAL, *KEPT, *options, "--wait", "--timeout", "120s")
    cluster.create_anew("default", asks_for_shown_ipus())
    pod = ("pod", "asks", "-n", "default")
    wait_until(lambda: cluster.get(*pod)["status"].get("phase") == "Running", "it runs")
    uid = cluster.get(*pod)["metadata"]["uid"]
    query = f"select micro_ipus, gpus from usage_podlifetime where uid = '{uid}'"
    assert wait_until(lambda: in_database(cluster, query), "the pod is recorded") == ["0|0"]
    cluster.kubectl("delete", *pod, "--grace-period=1")
    assert counted(cluster) == usage


def asks_for_shown_ipus() -> dict[str, Any]:
    """A counted pod, of no job, that requests half of the fleet by name."""
    container = {
        "name": "main",
        "image": "localhost/ipuhub:0.1.0",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "resources": {"limits": {RESOURCE: "16"}},
    }
    used = {"primehub.io/usage": json.dumps({"component": "job", "component_name": "asks"})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks", "annotations": used},
        "spec": {"containers": [container]},
    }


def test_nothing_was_denied(cluster: RealCluster, helm: Helm) -> None:
    wait_until(
        lambda: not any("deletionTimestamp" in pod["metadata"] for pod in own_pods(cluster)),
        "pods of the upgrade gone",
    )
    for pod in own_pods(cluster):
        name = pod["metadata"]["name"]
        assert "is forbidden" not in cluster.kubectl("logs", "-n", NAMESPACE, name), name
    assert refused_pods(cluster, NAMESPACE) == []


def test_uninstalling_stops_while_a_job_is_left_and_keeps_the_partitions_trace(
    cluster: RealCluster, helm: Helm
) -> None:
    done = helm.run("uninstall", "ipuhub", "--timeout", "60s", check=False)
    assert done.returncode != 0
    logs = cluster.kubectl("logs", "-n", NAMESPACE, f"job/{NAME}-uninstall")
    assert "default/trial" in logs
    cluster.kubectl("get", "deployment", f"{NAME}-controller-manager", "-n", NAMESPACE)
    cluster.kubectl("delete", "ipujob", "trial", "-n", "default", "--timeout=60s")
    before = passwords(cluster)
    helm.run("uninstall", "ipuhub", "--wait", "--timeout", "120s")
    cluster.kubectl("get", "crd", "ipujobs.graphcore.ai")
    tracker = cluster.find("configmap", "ipu-partitions-tracker", "-n", NAMESPACE)
    assert tracker is not None
    # Helm waits for what it deletes itself; the cluster deletes the pods of a Deployment after it.
    wait_until(
        lambda: not own_pods(cluster),
        "the release's pods gone",
    )
    # A database of the site's own has kept the user admin, and with it the password.
    helm.run("install", "ipuhub", CHART, *TRIAL, *KEPT)
    assert passwords(cluster) == before
