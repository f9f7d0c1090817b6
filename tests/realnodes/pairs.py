"""Every pair of pod and port of a release on a cluster: open by the rules, and open when tried."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.builders.documents import write_documents
from tests.chart.policies import OTHER_PORT, OUTSIDE, Peer, may_connect
from tests.realnodes import enforcement
from tests.realnodes.image import NAME as IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.realnodes.kit import RealCluster

Pair = tuple[str, str, int]
_INSTANCE, _COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
_STRANGER = "stranger"


@contextmanager
def strangers(cluster: RealCluster, namespace: str, operator: str) -> Iterator[None]:
    """Pods that are none of the release's, two with the labels of its operator."""
    labels: dict[str, str] = cluster.get("pod", operator, "-n", namespace)["metadata"]["labels"]
    elsewhere = f"{namespace}-elsewhere"
    impostor = {key: each for key, each in labels.items() if key.startswith("app.kubernetes.io/")}
    made = {
        ("plain", namespace): {},
        ("other-release", namespace): impostor | {_INSTANCE: "other"},
        ("plain-elsewhere", elsewhere): {},
        ("impostor-elsewhere", elsewhere): impostor,
    }
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}
    spec = {
        "containers": [container | {"command": ["sleep", "infinity"]}],
        "terminationGracePeriodSeconds": 0,
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}}
    pods: list[dict[str, Any]] = []
    for (name, where), own in made.items():
        metadata = {"name": name, "namespace": where, "labels": own | {_STRANGER: "yes"}}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    text = write_documents([space, *pods])
    cluster.kubectl("create", "-f", "-", stdin=text)
    for where in (namespace, elsewhere):
        ready = ("--for=condition=Ready", "--timeout=60s", "pods", "-l", _STRANGER)
        cluster.kubectl("wait", *ready, "-n", where)
    try:
        yield
    finally:
        cluster.kubectl("delete", "--wait=false", "-f", "-", stdin=text)


class Pairs:
    """One pod of each component of a release, the strangers, and what is no pod (`outside`)."""

    def __init__(self, cluster: RealCluster, namespace: str, release: str) -> None:
        self.seen: dict[Pair, bool] = {}
        self._policies = cluster.get("networkpolicies", "-n", namespace)["items"]
        pods = {
            _name(pod): pod
            for pod in cluster.get("pods", "-A")["items"]
            if pod["status"]["phase"] == "Running" and _is_one(pod, namespace, release)
        }
        self._peers = {
            name: Peer(name, pod["metadata"]["namespace"], pod["metadata"]["labels"])
            for name, pod in pods.items()
        } | {"outside": Peer("outside")}
        known = enforcement.networks()
        address = {name: str(pod["status"]["podIP"]) for name, pod in pods.items()}
        self._networks = {name: known[each] for name, each in address.items()}
        self._targets = {
            (name, port): (address[name], port)
            for name, pod in pods.items()
            for port in (*_ports(pod), OTHER_PORT)
        } | {("outside", port): (enforcement.MACHINE, port) for port in OUTSIDE.values()}

    def documented(self) -> dict[Pair, bool]:
        """Return the pairs that the rules leave open."""
        return {
            (source, to, port): may_connect(
                self._policies, self._peers[source], self._peers[to], port
            )
            for source in self._peers
            for to, port in self._targets
            if to != source
        }

    def listening(self) -> AbstractContextManager[None]:
        """A server answers at every address where the release has none."""
        return enforcement.listening(self._networks, OTHER_PORT, list(OUTSIDE.values()))

    def tried(self) -> dict[Pair, bool]:
        """Return the pairs for which a connection was opened."""
        networks = self._networks | {"outside": ""}
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda each: self._tried_from(*each), networks.items()):
                self.seen |= found
        return self.seen

    def _tried_from(self, source: str, network: str) -> dict[Pair, bool]:
        wanted = {key: each for key, each in self._targets.items() if key[0] != source}
        outcomes = enforcement.reached(network, list(wanted.values()))
        return {(source, *key): outcomes[each] for key, each in wanted.items()}


def _name(pod: dict[str, Any]) -> str:
    meta = pod["metadata"]
    return str(meta["name"] if _STRANGER in meta["labels"] else meta["labels"][_COMPONENT])


def _is_one(pod: dict[str, Any], namespace: str, release: str) -> bool:
    meta = pod["metadata"]
    if "deletionTimestamp" in meta:  # an upgrade has replaced it, and its network goes with it
        return False
    labels = meta.get("labels") or {}
    ours = (meta["namespace"], labels.get(_INSTANCE)) == (namespace, release)
    return (ours and _COMPONENT in labels) or _STRANGER in labels


def _ports(pod: dict[str, Any]) -> list[int]:
    (container,) = pod["spec"]["containers"]
    return [each["containerPort"] for each in container.get("ports", ())]
