"""The release `ipuhub` with the trial job: what runs, and what no upgrade may disturb."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography import x509

from ipuhub.certificates import SERVER, Authority, issue, key_of, subject_of
from tests.fakes.waiting import wait_until
from tests.realnodes.published import LEASES
from tests.realnodes.release import component_of, rows

if TYPE_CHECKING:
    from tests.realnodes.kit import RealCluster

NAMESPACE = "ipuhub-system"
NAME = "ipuhub-ipu-operator"


def own_pods(cluster: RealCluster) -> list[dict[str, Any]]:
    found = cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/instance=ipuhub")
    return list(found["items"])


def job_status(cluster: RealCluster) -> dict[str, Any]:
    found = cluster.get("ipujob", "trial", "-n", "default")
    return dict(found.get("status") or {})


def uids_of_workers(cluster: RealCluster) -> set[str]:
    pods = cluster.get("pods", "-n", "default", "-l", "graphcore.ai/ipujob-name=trial")
    return {pod["metadata"]["uid"] for pod in pods["items"]}


def in_database(cluster: RealCluster, query: str) -> list[str]:
    """The rows of a query in the release's database."""
    return rows(cluster, "ipuhub", NAMESPACE, query)


def counted(cluster: RealCluster) -> list[str]:
    """Return the records of the trial job's pods: since when, with how many IPUs, to what end."""
    job = cluster.get("ipujob", "trial", "-n", "default")["metadata"]["uid"]
    columns = "uid, scheduled_at, micro_ipus, coalesce(finished_at::text, 'going')"
    return in_database(
        cluster,
        f"select {columns} from usage_podlifetime where job_uid = '{job}' order by uid",
    )


def authority(cluster: RealCluster) -> str:
    found = cluster.get("mutatingwebhookconfiguration", NAME)
    return str(found["webhooks"][0]["clientConfig"].get("caBundle", ""))


def webhook_secret(cluster: RealCluster) -> dict[str, str]:
    return dict(cluster.get("secret", f"{NAME}-webhook", "-n", NAMESPACE)["data"])


def certificate_in(secret: dict[str, str]) -> bytes:
    """The server's certificate in a Secret, DER."""
    return ssl.PEM_cert_to_DER_cert(base64.b64decode(secret["tls.crt"]).decode())


def served_certificate(cluster: RealCluster) -> bytes:
    """The certificate that the webhooks' only pod serves, DER."""
    (pod,) = (pod for pod in own_pods(cluster) if component_of(pod) == "webhook")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((pod["status"]["podIP"], 9443)))


def soon_over(secret: dict[str, str]) -> dict[str, str]:
    """Another certificate of the Secret's authority for the same names, valid for 65 days."""
    pem = {key: base64.b64decode(value) for key, value in secret.items()}
    key = key_of(pem["ca.key"])
    assert key is not None
    names = (
        x509.load_pem_x509_certificate(pem["tls.crt"])
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value.get_values_for_type(x509.DNSName)
    )
    authority = Authority(x509.load_pem_x509_certificate(pem["ca.crt"]), key)
    then = datetime.now(UTC) - timedelta(days=300)
    made = issue(authority, subject_of(names[0]), [SERVER], names, then)
    data = {"tls.crt": made.certificate, "tls.key": made.key}
    return {name: base64.b64encode(pem).decode() for name, pem in data.items()}


def passwords(cluster: RealCluster) -> list[Any]:
    """Passwords of the dashboard's administrator and of the database, as the cluster keeps them."""
    names = (f"{NAME}-web", f"{NAME}-database")
    return [cluster.get("secret", name, "-n", NAMESPACE)["data"] for name in names]


class Undisturbed(NamedTuple):
    """All that an upgrade leaves as it is."""

    authority: str
    secrets: list[Any]
    instances: Any  # with the id of the partition and the attempt
    restarts: int
    partitions: list[str]
    pods: set[str]
    usage: list[str]

    @classmethod
    def now(cls, cluster: RealCluster) -> Undisturbed:
        """Read it, of the release and the trial job."""
        uid = cluster.get("ipujob", "trial", "-n", "default")["metadata"]["uid"]
        status = job_status(cluster)
        assert status["launcherStatus"] == "Running", status
        columns = "key, partition, attempt, reserved_at, released_at is null"
        held = f"select {columns} from partitions_partitionlifetime where job_uid = '{uid}'"
        return cls(
            authority(cluster),
            passwords(cluster),
            status["instances"],
            status.get("restartCount", 0),
            in_database(cluster, held),
            uids_of_workers(cluster),
            counted(cluster),
        )


def leaders(cluster: RealCluster) -> dict[str, str]:
    """The pod that holds each Lease; empty: no pod holds it."""
    return {
        component: str(
            cluster.get("lease", f"{NAME}-{lease}", "-n", NAMESPACE)["spec"].get("holderIdentity")
            or ""
        ).partition("_")[0]
        for component, lease in LEASES.items()
    }


def until_new_pods_work(cluster: RealCluster, old: set[str]) -> None:
    """Return once no pod is of these, and of those that are left the leaders work."""

    def do() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in own_pods(cluster)}
        gone = old.isdisjoint(pod["metadata"]["uid"] for pod in pods.values())
        return gone and set(leaders(cluster).values()) <= set(pods)

    wait_until(do, "the new pods work")


def uids_of_pods(cluster: RealCluster) -> set[str]:
    """The pods that an upgrade of the components replaces: all but the database."""
    return {pod["metadata"]["uid"] for pod in own_pods(cluster) if component_of(pod) != "database"}
