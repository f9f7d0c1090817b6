"""glue: what operator and webhooks read."""

from __future__ import annotations

from ipuhub.env import SettingError
from ipuhub.variables import ENV

LONGEST_WEBHOOK_TIMEOUT_SECONDS = 30

ENV.read_by("Operator, prober and dashboard")
PROXY_URL = ENV.text(
    "IPUHUB_PROXY_URL", "http://127.0.0.1:8080", doc="Where the V-IPU Proxy answers."
)
PROXY_TOKEN = ENV.text(
    "IPUHUB_PROXY_TOKEN",
    "",
    doc="Token for the proxy (audience ipuhub-proxy), usually IPUHUB_PROXY_TOKEN_FILE.",
)
ENV.read_by("Operator")
OPERATOR_CONCURRENCY = ENV.integer(
    "IPUHUB_OPERATOR_CONCURRENCY",
    32,
    minimum=1,
    doc="IPUJobs reconciled at the same time; those that wait for the V-IPU Proxy do not count.",
)
PARTITION_POLL_SECONDS = ENV.number(
    "IPUHUB_PARTITION_POLL_SECONDS",
    2.0,
    doc="How often the operator asks the proxy for all partitions.",
)
ENV.read_by("Operator and webhooks")
HOST_NETWORK = ENV.switch(
    "IPUHUB_HOST_NETWORK",
    True,
    doc="Job pods use the host network unless their template says otherwise; off: the pod profile "
    "graphcore does not allow it either. Same for operator and webhooks.",
)
POD_PROFILE = ENV.choice(
    "IPUHUB_POD_PROFILE",
    "graphcore",
    ("graphcore", "baseline", "restricted", "privileged"),
    doc="What job pods may ask for. baseline, restricted: the Pod Security Standards; graphcore: "
    "baseline with hostIPC, hostNetwork and IPC_LOCK, as published manifests need; privileged: "
    "anything. The label ipuhub.io/pod-profile of a namespace overrides it there. Same for "
    "operator and webhooks.",
)
POD_STANDARD_VERSION = ENV.minor_version(
    "IPUHUB_POD_STANDARD_VERSION",
    37,
    doc="Kubernetes version whose Pod Security Standards count. Same for operator and webhooks.",
)
JOB_SECRETS = ENV.words(
    "IPUHUB_JOB_SECRETS",
    ["ipujob-*"],
    doc="Secrets that jobs may read, by volume or environment: names, * stands for any text. Not "
    "asked about where the pod profile is privileged. Same for operator and webhooks.",
)
ENV.read_by("Operator")
MPI_INTERFACES = ENV.text(
    "IPUHUB_MPI_INTERFACES",
    "",
    doc="Network interfaces by which mpirun reaches the workers, as names (ib0,eth1) or networks "
    "(10.1.0.0/16): btl_tcp_if_include and oob_tcp_if_include of jobs that name none. Empty: Open "
    "MPI chooses.",
)
LAUNCHER_IMAGE = ENV.text(
    "IPUHUB_LAUNCHER_IMAGE", "ipuhub:latest", doc="Image of the launcher's init container."
)
LAUNCHER_IMAGE_PULL_POLICY = ENV.choice(
    "IPUHUB_LAUNCHER_IMAGE_PULL_POLICY",
    "IfNotPresent",
    ("Always", "IfNotPresent", "Never"),
    doc="Its pull policy.",
)
LAUNCHER_WAIT_SECONDS = ENV.number(
    "IPUHUB_LAUNCHER_WAIT_SECONDS",
    0.0,
    doc="How long a launcher waits for its workers before its job fails; 0: without end.",
)
VIPU_TIMEOUT_SECONDS = ENV.integer(
    "IPUHUB_VIPU_TIMEOUT_SECONDS", 120, minimum=1, doc="IPUOF_VIPU_API_TIMEOUT of job pods."
)
MOST_LOSSES = ENV.integer(
    "IPUHUB_MOST_LOSSES",
    50,
    minimum=0,
    doc="Attempts in a row that may end through no fault of the job (a lost pod, a broken or "
    "refused partition) before it fails with LossLimitReached; 0: no limit.",
)
RESTART_HOLD_SECONDS = ENV.number(
    "IPUHUB_RESTART_HOLD_SECONDS",
    60.0,
    doc="A job keeps its partition during a pause before its next attempt of at most so long; "
    "during a longer one others can have the IPUs.",
)
START_HOLD_SECONDS = ENV.number(
    "IPUHUB_START_HOLD_SECONDS",
    600.0,
    doc="How long a job whose pods cannot start keeps its partition before it gives it back for "
    "five minutes; 0: without end.",
)
ENV.read_by("Operator and webhooks")
SESSION_DEFAULT_SECONDS = ENV.integer(
    "IPUHUB_SESSION_DEFAULT_SECONDS",
    0,
    minimum=0,
    doc="interactive.ttl of jobs that give none; 0: they must. Same for operator and webhooks.",
)
SESSION_MAXIMUM_SECONDS = ENV.integer(
    "IPUHUB_SESSION_MAXIMUM_SECONDS",
    0,
    minimum=0,
    doc="Longest interactive.ttl; 0: no limit. Same for operator and webhooks.",
)
if 0 < SESSION_MAXIMUM_SECONDS < SESSION_DEFAULT_SECONDS:
    raise SettingError(
        f"IPUHUB_SESSION_DEFAULT_SECONDS is {SESSION_DEFAULT_SECONDS}, more than "
        f"IPUHUB_SESSION_MAXIMUM_SECONDS: make it {SESSION_MAXIMUM_SECONDS} or less"
    )

ENV.read_by("Webhooks")
WEBHOOK_HOST = ENV.text("IPUHUB_WEBHOOK_HOST", "127.0.0.1", doc="Address of the webhooks.")
WEBHOOK_PORT = ENV.integer("IPUHUB_WEBHOOK_PORT", 9443, minimum=0, doc="Port of the webhooks.")
WEBHOOK_CERTIFICATE_PATH = ENV.text(
    "IPUHUB_WEBHOOK_CERTIFICATE_PATH",
    "",
    doc="Their TLS certificate, PEM; a changed file is taken up without a restart.",
)
WEBHOOK_KEY_PATH = ENV.text("IPUHUB_WEBHOOK_KEY_PATH", "", doc="Its private key, PEM.")
WEBHOOK_FAILURE_POLICY = ENV.choice(
    "IPUHUB_WEBHOOK_FAILURE_POLICY",
    "Fail",
    ("Fail", "Ignore"),
    doc="What the API server does while no webhook answers: refuse (Fail) or accept (Ignore).",
)
WEBHOOK_TIMEOUT_SECONDS = ENV.integer(
    "IPUHUB_WEBHOOK_TIMEOUT_SECONDS",
    10,
    minimum=1,
    doc="How long the API server waits for an answer of the webhooks; at most 30.",
)
if WEBHOOK_TIMEOUT_SECONDS > LONGEST_WEBHOOK_TIMEOUT_SECONDS:
    raise SettingError(
        f"IPUHUB_WEBHOOK_TIMEOUT_SECONDS is {WEBHOOK_TIMEOUT_SECONDS}: Kubernetes allows "
        f"{LONGEST_WEBHOOK_TIMEOUT_SECONDS} at most"
    )
WEBHOOK_SKIPPED_NAMESPACES = ENV.words(
    "IPUHUB_WEBHOOK_SKIPPED_NAMESPACES",
    ["kube-system", "ipuhub-system"],
    doc="Namespaces about whose IPUJobs the webhooks are not asked.",
)
for _name, _instead in (
    ("IPUHUB_HOST_IPC", "IPUHUB_POD_PROFILE=graphcore, the default, allows hostIPC"),
    ("IPUHUB_PRIVILEGED_NAMESPACES", "label each namespace ipuhub.io/pod-profile=privileged"),
):
    ENV.retired(_name, _instead)
