"""Each process uses exactly its granted rights: a missing or superfluous right fails here.

V-IPU is secure, so that the pods of jobs have keys, which the operator stores.

The API server of the demo authorises by the stored roles and notes each right that it allowed a
request by. "Less" is refused there; "more" is what nothing in this tour, nor in the table, needs.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import yaml

from devcluster.demo.cluster import KEYS_FILE
from devcluster.demo.processes import NAMESPACE
from tests.devcluster.unit.demo.test_access_rules import FILES, granted
from tests.e2e.running_demo import EXAMPLES, start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.running_demo import RunningDemo

NEVER_IN_THIS_TOUR = {
    "ipuhub-operator create pods/exec": "the launcher's Role has it, and nobody can grant more",
    "ipuhub-operator get pods/exec": "the launcher's Role has it, and nobody can grant more",
    "ipuhub-operator update ipujobs/finalizers.graphcore.ai": "owners that block deletion need it "
    "where OwnerReferencesPermissionEnforcement is on",
    "ipuhub-monitor get pods": "only of pods that the prober lost: integration/monitor",
    "ipuhub-monitor list pods": "only of pods that the prober lost: integration/monitor",
}
JOB = """
apiVersion: graphcore.ai/v1alpha1
kind: IPUJob
metadata: {name: NAME}
spec:
  modelReplicas: "1"
  ipusPerModelReplica: "1"
  ttlSecondsAfterFinished: 1
  launcher: {command: ["true"]}
  workers:
    replicas: 1
    template: {spec: {containers: [{name: main, image: "example.com/main:1"}]}}
"""
STRANGERS = (
    ("configmap", "taken-a-launcher"),
    ("role", "taken-b-launcher", "--verb=get", "--resource=pods"),
    ("rolebinding", "taken-c-launcher", "--role=x", "--user=y"),
    ("serviceaccount", "taken-d-launcher"),
)
LEASES = ("ipu-operator", "ipuhub-proxy", "ipuhub-prober")
CHANGED = {
    "configmap": {"data": {"hostfile": "another"}},
    "role": {"rules": []},
    "rolebinding": {"subjects": []},
}
METRICS = ("web", "proxy", "operator health", "prober health", "webhooks health", "monitor health")
_PRODUCT = ("operator", "proxy", "web", "prober", "monitor", "webhooks")


@pytest.fixture
def own_demo(
    needs_kubectl: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningDemo]:
    """A demo that starts from nothing, so that it makes its Leases and ConfigMaps."""
    demo = start_demo(tmp_path_factory.mktemp("rights"), "--secure")
    yield demo
    stop_demo(demo)


def rights_granted() -> set[str]:
    """Account, verb and resource, one each."""
    return {
        f"{account} {verb} {resource}{f'.{group}' if group else ''}"
        for account, _, rule in granted(*FILES, KEYS_FILE)
        if account.removeprefix("ipuhub-") in _PRODUCT
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


def rights_used(demo: RunningDemo) -> set[str]:
    """The same, of the requests so far."""
    (file,) = demo.directory.rglob("rights-used.txt")
    prefix = f"system:serviceaccount:{NAMESPACE}:"
    lines = file.read_text().splitlines()
    return {line.removeprefix(prefix) for line in lines if line.startswith(prefix)}


def test_each_right_is_used_and_no_other_is_missing(own_demo: RunningDemo) -> None:
    demo = own_demo
    demo.wait_until_recording()
    read_metrics(demo)
    find_strangers(demo)
    change_what_a_job_needs(demo)
    use_the_dashboard(demo)
    stand_by(demo)
    end_jobs(demo)
    wanted = rights_granted() - set(NEVER_IN_THIS_TOUR)
    wait_until(lambda: wanted <= rights_used(demo), f"{wanted - rights_used(demo)} used")
    assert rights_used(demo) & set(NEVER_IN_THIS_TOUR) == set()
    product = {one for one in rights_used(demo) if one.split()[0] != "ipuhub-kubelet"}
    assert product - rights_granted() <= {"ipuhub-web get /version"}  # open to every account
    assert [line for line in demo.lines if "is forbidden" in line] == []


def read_metrics(demo: RunningDemo) -> None:
    """Read metrics as an account that may not: each process asks who it is, and whether it may."""
    token = demo.kubectl("create", "token", "default").strip()
    for name in METRICS:
        assert fetch(f"http://127.0.0.1:{demo.ports[name]}/metrics", token)[0] == 403, name


def find_strangers(demo: RunningDemo) -> None:
    """Objects, and a pod, that have the names that jobs need."""
    for words in STRANGERS:
        demo.kubectl("create", *words)
    demo.kubectl("run", "taken-e-worker-0", "--image=example.com/other:1")
    for letter in "abcde":
        demo.kubectl("apply", "-f", "-", stdin=JOB.replace("NAME", f"taken-{letter}"))


def change_what_a_job_needs(demo: RunningDemo) -> None:
    """The operator recreates it and reports it, the second time by raising the count of the first
    event."""
    demo.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    wait_until(lambda: demo.status("ipujob-sample") == "Running", "Running")
    for changes in (CHANGED, {"configmap": CHANGED["configmap"]}):
        before = {kind: uid_of(demo, kind) for kind in changes}
        for kind, patch in changes.items():
            name = ("ipujob-sample-launcher", "--type=merge", "-p", json.dumps(patch))
            demo.kubectl("patch", kind, *name)
        for kind, uid in before.items():
            wait_until(lambda k=kind, u=uid: uid_of(demo, k) not in {"", u}, f"{kind} made anew")


def uid_of(demo: RunningDemo, kind: str) -> str:
    """Of what the sample's launcher needs; empty while there is none."""
    group = "/api/v1" if kind == "configmap" else "/apis/rbac.authorization.k8s.io/v1"
    found = demo.read(f"{group}/namespaces/default/{kind}s/ipujob-sample-launcher")
    return str(found["metadata"]["uid"]) if found else ""


def use_the_dashboard(demo: RunningDemo) -> None:
    """Its components, the logs of a pod, and a job that a user suspends."""
    made = demo.manage(
        *("make_api_token", "admin", "--dir", str(demo.directory), "--scopes", "read write reports")
    )
    token = next(word for word in made.split() if word.startswith("ipuhub_"))
    uid = demo.job("ipujob-sample")["metadata"]["uid"]
    for path in ("components", "fleet", f"jobs/{uid}/logs", "partitions"):
        assert fetch(f"{demo.dashboard}/api/v1/{path}", token)[0] == 200, path
    address = f"{demo.dashboard}/api/v1/jobs/{uid}/suspend"
    assert fetch(address, token, b"{}")[0] == 200
    wait_until(lambda: demo.status("ipujob-sample") == "Suspended", "Suspended")


def stand_by(demo: RunningDemo) -> None:
    """Each leader loses its Lease and watches it until it can have it again."""
    for lease in LEASES:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        patch = json.dumps({"spec": {"holderIdentity": "another", "renewTime": now}})
        demo.kubectl("patch", "lease", lease, "-n", NAMESPACE, "--type=merge", "-p", patch)
    for lease in LEASES:
        wait_until(lambda one=lease: holder(demo, one) not in {"", "another"}, f"{lease} is held")


def holder(demo: RunningDemo, lease: str) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease}"
    return str(demo.read(path)["spec"].get("holderIdentity") or "")


def end_jobs(demo: RunningDemo) -> None:
    """A job that stays until its workers get a signal to end, a job that ends by its time to live,
    the others by their users."""
    for name in ("kept", "short"):
        job = yaml.safe_load(JOB.replace("NAME", name))
        annotations = {"sim/runtime-seconds": "1"}
        job["spec"]["workers"]["template"]["metadata"] = {"annotations": annotations}
        if name == "kept":
            del job["spec"]["ttlSecondsAfterFinished"]
        demo.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    wait_until(lambda: demo.status("kept") == "Completed", "Completed")
    right = "ipuhub-operator patch pods"
    wait_until(lambda: right in rights_used(demo), "the worker that still sleeps is told to end")
    found = ("get", "ipujob", "short", "--ignore-not-found")
    wait_until(lambda: demo.kubectl(*found) == "", "deleted by its time to live")
    demo.kubectl("delete", "ipujobs", "--all", "--timeout=120s")


def fetch(address: str, token: str, body: bytes | None = None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if body is not None:
        headers["Idempotency-Key"] = "rights-used"
    request = urllib.request.Request(address, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
