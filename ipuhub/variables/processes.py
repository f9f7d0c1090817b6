"""glue: settings of every process: the cluster, health, logs, leadership."""

from __future__ import annotations

from ipuhub.variables import ENV

ENV.read_by("Every process")
KUBECONFIG = ENV.text(
    "KUBECONFIG", "", doc="Kubeconfig file; empty: in-cluster credentials, else ~/.kube/config."
)
KUBE_CONTEXT = ENV.text(
    "IPUHUB_KUBE_CONTEXT", "", doc="Kubeconfig context; empty: the current context."
)
NAMESPACE = ENV.text(
    "IPUHUB_NAMESPACE", "ipuhub-system", doc="Namespace of IPUHub's own objects (tracker, leases)."
)
SERVICE_ACCOUNT = ENV.text(
    "IPUHUB_SERVICE_ACCOUNT",
    "",
    doc="Service account of the process. Used to request a proxy token if IPUHUB_PROXY_TOKEN is "
    "not set.",
)


HEALTH_HOST = ENV.text(
    "IPUHUB_HEALTH_HOST",
    "127.0.0.1",
    doc="Address of /healthz and /readyz. `::` stands for every address of IPv6 and IPv4.",
)
HEALTH_PORT = ENV.port(
    "IPUHUB_HEALTH_PORT", 8081, doc="Port of /healthz and /readyz; 0: any free port."
)
LOG_LEVEL = ENV.choice(
    "IPUHUB_LOG_LEVEL",
    "info",
    ("debug", "info", "warning", "error"),
    doc="Lowest level of log lines that are written.",
)
LOG_FORMAT = ENV.choice("IPUHUB_LOG_FORMAT", "text", ("text", "json"), doc="Format of log lines.")


ENV.read_by("Operator, webhooks, V-IPU Proxy and prober")
LEADER_ELECTION = ENV.switch(
    "IPUHUB_LEADER_ELECTION",
    True,
    doc="Whether replicas elect a leader with a Lease in IPUHUB_NAMESPACE. One replica works, "
    "the others stand by. Turn it off only if there is never a second replica.",
)
LEASE_PREFIX = ENV.text(
    "IPUHUB_LEASE_PREFIX",
    "",
    doc="Text before the names of the Leases, so that two installations can share "
    "IPUHUB_NAMESPACE. The names are ipu-operator, ipuhub-proxy, ipuhub-prober and "
    "ipuhub-webhooks.",
)
IDENTITY = ENV.text(
    "IPUHUB_IDENTITY",
    "",
    doc="Name of this replica in the Lease; empty: the pod's or host's name with a random suffix. "
    "A process that restarts under a fixed name takes its own Lease back at once. Names must be "
    "unique.",
)
LEASE_DURATION_SECONDS = ENV.integer(
    "IPUHUB_LEASE_DURATION_SECONDS",
    15,
    minimum=1,
    doc="How long a leader that does not renew keeps the Lease.",
)
LEASE_RENEW_SECONDS = ENV.number(
    "IPUHUB_LEASE_RENEW_SECONDS",
    10.0,
    doc="How long a leader tries to renew the Lease before it stops working; less than "
    "IPUHUB_LEASE_DURATION_SECONDS.",
)
LEASE_RETRY_SECONDS = ENV.number(
    "IPUHUB_LEASE_RETRY_SECONDS",
    2.0,
    doc="Time between two attempts to take or renew the Lease; less than "
    "IPUHUB_LEASE_RENEW_SECONDS.",
)
