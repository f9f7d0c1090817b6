"""glue: what every process reads: the cluster, health, logs, leadership."""

from __future__ import annotations

from ipuhub.variables import ENV

ENV.read_by("Every process")
KUBECONFIG = ENV.text(
    "KUBECONFIG", "", doc="Kubeconfig file; empty: in-cluster credentials, else ~/.kube/config."
)
KUBE_CONTEXT = ENV.text(
    "IPUHUB_KUBE_CONTEXT", "", doc="Kubeconfig context; empty: the current one."
)
NAMESPACE = ENV.text(
    "IPUHUB_NAMESPACE", "ipuhub-system", doc="Namespace of IPUHub's own objects (tracker, leases)."
)
SERVICE_ACCOUNT = ENV.text(
    "IPUHUB_SERVICE_ACCOUNT",
    "",
    doc="Own service account, to request a proxy token for where IPUHUB_PROXY_TOKEN is not set.",
)


HEALTH_HOST = ENV.text("IPUHUB_HEALTH_HOST", "127.0.0.1", doc="Address of /healthz and /readyz.")
HEALTH_PORT = ENV.integer(
    "IPUHUB_HEALTH_PORT", 8081, minimum=0, doc="Port of /healthz and /readyz; 0: any free."
)
LOG_LEVEL = ENV.choice(
    "IPUHUB_LOG_LEVEL",
    "info",
    ("debug", "info", "warning", "error"),
    doc="Least severe log line shown.",
)
LOG_FORMAT = ENV.choice("IPUHUB_LOG_FORMAT", "text", ("text", "json"), doc="Form of log lines.")


ENV.read_by("Operator, V-IPU Proxy and prober")
LEADER_ELECTION = ENV.switch(
    "IPUHUB_LEADER_ELECTION",
    True,
    doc="Of several operators, proxies or probers one works, the others stand by (a Lease in "
    "IPUHUB_NAMESPACE); off: there is never a second one.",
)
IDENTITY = ENV.text(
    "IPUHUB_IDENTITY",
    "",
    doc="Name of this replica in the Lease; empty: the host's with a random part. A process that "
    "is started again under a fixed name takes its own Lease back at once; no two may share one.",
)
LEASE_DURATION_SECONDS = ENV.integer(
    "IPUHUB_LEASE_DURATION_SECONDS",
    15,
    minimum=1,
    doc="How long a leader that says nothing keeps the Lease.",
)
LEASE_RENEW_SECONDS = ENV.number(
    "IPUHUB_LEASE_RENEW_SECONDS",
    10.0,
    doc="How long a leader tries to renew the Lease before it stops; less than its duration.",
)
LEASE_RETRY_SECONDS = ENV.number(
    "IPUHUB_LEASE_RETRY_SECONDS",
    2.0,
    doc="Time between two tries to take or renew the Lease; less than the time to renew.",
)
