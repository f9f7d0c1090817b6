"""glue: settings of operator and webhooks."""

from __future__ import annotations

from ipuhub import __version__
from ipuhub.env import SettingError
from ipuhub.variables import ENV

LONGEST_WEBHOOK_TIMEOUT_SECONDS = 30

ENV.read_by("Operator, prober and dashboard")
PROXY_URL = ENV.text("IPUHUB_PROXY_URL", "http://127.0.0.1:8080", doc="URL of the V-IPU Proxy.")
PROXY_TOKEN = ENV.text(
    "IPUHUB_PROXY_TOKEN",
    "",
    doc="Bearer token for the V-IPU Proxy (audience ipuhub-proxy), usually given as "
    "IPUHUB_PROXY_TOKEN_FILE.",
)
ENV.read_by("Operator")
OPERATOR_CONCURRENCY = ENV.integer(
    "IPUHUB_OPERATOR_CONCURRENCY",
    32,
    minimum=1,
    doc="How many IPUJobs the operator reconciles at the same time. Jobs that wait for the V-IPU"
    " Proxy do not count.",
)
JOB_NAMESPACES = ENV.words(
    "IPUHUB_JOB_NAMESPACES",
    [],
    doc="Namespaces whose IPUJobs the operator reconciles; empty: all. Two installations in one "
    "cluster need lists without a common namespace; give their webhooks the same with "
    "IPUHUB_WEBHOOK_NAMESPACES.",
)
PARTITION_POLL_SECONDS = ENV.number(
    "IPUHUB_PARTITION_POLL_SECONDS",
    2.0,
    doc="How often the operator lists all partitions of the proxy.",
)
ENV.read_by("Operator and webhooks")
HOST_NETWORK = ENV.switch(
    "IPUHUB_HOST_NETWORK",
    True,
    doc="Whether job pods use the host network unless their template says otherwise. If off, the"
    " pod profile graphcore does not allow the host network either. Set the same value for "
    "operator and webhooks.",
)
POD_PROFILE = ENV.choice(
    "IPUHUB_POD_PROFILE",
    "graphcore",
    ("graphcore", "baseline", "restricted", "privileged"),
    doc="What job pods may request. baseline and restricted: the Pod Security Standards. "
    "graphcore: baseline plus hostIPC, hostNetwork and IPC_LOCK, which Graphcore's published"
    " manifests need. privileged: anything. The namespace label ipuhub.io/pod-profile "
    "overrides it. Set the same value for operator and webhooks.",
)
POD_STANDARD_VERSION = ENV.minor_version(
    "IPUHUB_POD_STANDARD_VERSION",
    37,
    doc="Minor version of Kubernetes whose Pod Security Standards apply. Set the same value for "
    "operator and webhooks.",
)
JOB_SECRETS = ENV.words(
    "IPUHUB_JOB_SECRETS",
    ["ipujob-*"],
    doc="Names of Secrets that jobs may mount or read into their environment; * matches any "
    "text. Ignored where the pod profile is privileged. Set the same value for operator and "
    "webhooks.",
)
ENV.read_by("Operator")
SCHEDULER_NAME = ENV.text(
    "IPUHUB_SCHEDULER_NAME",
    "",
    doc="Scheduler of job pods whose template names none, for example a second kube-scheduler "
    "that asks the V-IPU Proxy (docs/admin/scheduler.md). Empty: the cluster's default scheduler.",
)
MPI_INTERFACES = ENV.text(
    "IPUHUB_MPI_INTERFACES",
    "",
    doc="Network interfaces that mpirun uses to reach the workers: names (ib0,eth1) or networks "
    "(10.1.0.0/16). Sets btl_tcp_if_include and oob_tcp_if_include for jobs that do not set "
    "them. Empty: Open MPI chooses.",
)
LAUNCHER_IMAGE = ENV.text(
    "IPUHUB_LAUNCHER_IMAGE",
    f"localhost/ipuhub-launcher:{__version__}",
    doc="Image of the launcher's init container, as `make images` names it.",
)
LAUNCHER_IMAGE_PULL_POLICY = ENV.choice(
    "IPUHUB_LAUNCHER_IMAGE_PULL_POLICY",
    "IfNotPresent",
    ("Always", "IfNotPresent", "Never"),
    doc="Pull policy of IPUHUB_LAUNCHER_IMAGE.",
)
LAUNCHER_PULL_SECRETS = ENV.words(
    "IPUHUB_LAUNCHER_PULL_SECRETS",
    [],
    doc="Pull secrets of IPUHUB_LAUNCHER_IMAGE, added to each launcher pod. Every namespace with "
    "jobs needs Secrets of these names.",
)
LAUNCHER_WAIT_SECONDS = ENV.number(
    "IPUHUB_LAUNCHER_WAIT_SECONDS",
    0.0,
    doc="How long a launcher waits for its workers before the job fails; 0: no limit.",
)
VIPU_TIMEOUT_SECONDS = ENV.integer(
    "IPUHUB_VIPU_TIMEOUT_SECONDS",
    120,
    minimum=1,
    doc="Value of IPUOF_VIPU_API_TIMEOUT in job pods.",
)
MOST_LOSSES = ENV.integer(
    "IPUHUB_MOST_LOSSES",
    50,
    minimum=0,
    doc="How many attempts in a row a job may lose through no fault of its own (a lost pod, a "
    "broken or refused partition) before it fails with LossLimitReached; 0: no limit.",
)
RESTART_HOLD_SECONDS = ENV.number(
    "IPUHUB_RESTART_HOLD_SECONDS",
    60.0,
    doc="Longest backoff before the next attempt during which a job keeps its partition. During "
    "a longer backoff the IPUs are free for other jobs.",
)
START_HOLD_SECONDS = ENV.number(
    "IPUHUB_START_HOLD_SECONDS",
    600.0,
    doc="How long a job whose pods cannot start keeps its partition. It then releases the "
    "partition for five minutes; 0: no limit.",
)
READY_HOLD_SECONDS = ENV.number(
    "IPUHUB_READY_HOLD_SECONDS",
    1800.0,
    doc="How long a job keeps its partition when its pods are created and the job does not start, "
    "for example because an image is large, a volume cannot be mounted or a worker does not become "
    "Ready. It then releases the partition for five minutes; 0: no limit.",
)
ENV.read_by("Operator and webhooks")
SESSION_DEFAULT_SECONDS = ENV.integer(
    "IPUHUB_SESSION_DEFAULT_SECONDS",
    0,
    minimum=0,
    doc="Default interactive.ttl; 0: every interactive job must set its own. Set the same value "
    "for operator and webhooks.",
)
SESSION_MAXIMUM_SECONDS = ENV.integer(
    "IPUHUB_SESSION_MAXIMUM_SECONDS",
    0,
    minimum=0,
    doc="Longest allowed interactive.ttl; 0: no limit. Set the same value for operator and "
    "webhooks.",
)
if 0 < SESSION_MAXIMUM_SECONDS < SESSION_DEFAULT_SECONDS:
    raise SettingError(
        f"IPUHUB_SESSION_DEFAULT_SECONDS is {SESSION_DEFAULT_SECONDS}, more than "
        f"IPUHUB_SESSION_MAXIMUM_SECONDS: make it {SESSION_MAXIMUM_SECONDS} or less"
    )

ENV.read_by("Webhooks")
WEBHOOK_HOST = ENV.text(
    "IPUHUB_WEBHOOK_HOST",
    "127.0.0.1",
    doc="Address the webhooks listen on. `::` stands for every address of IPv6 and IPv4.",
)
WEBHOOK_PORT = ENV.port("IPUHUB_WEBHOOK_PORT", 9443, doc="Port the webhooks listen on.")
WEBHOOK_CERTIFICATE_PATH = ENV.text(
    "IPUHUB_WEBHOOK_CERTIFICATE_PATH",
    "",
    doc="File with the TLS certificate of the webhooks (PEM). The webhooks reload it when it "
    "changes.",
)
WEBHOOK_KEY_PATH = ENV.text(
    "IPUHUB_WEBHOOK_KEY_PATH",
    "",
    doc="File with the private key of the webhooks' TLS certificate (PEM).",
)
WEBHOOK_SECRET = ENV.text(
    "IPUHUB_WEBHOOK_SECRET",
    "",
    doc="Name of a Secret in IPUHUB_NAMESPACE in which the webhooks keep a certificate that they "
    "make and renew themselves, instead of IPUHUB_WEBHOOK_CERTIFICATE_PATH. They also write the "
    "CA into the webhook configurations. The Secret must exist and may be empty.",
)
WEBHOOK_DNS_NAMES = ENV.words(
    "IPUHUB_WEBHOOK_DNS_NAMES",
    [],
    doc="Names and addresses in the certificate of IPUHUB_WEBHOOK_SECRET: those by which the API "
    "server reaches the webhooks, such as ipuhub-webhooks.ipuhub-system.svc.",
)
WEBHOOK_CONFIGURATION = ENV.text(
    "IPUHUB_WEBHOOK_CONFIGURATION",
    "ipuhub-ipujobs",
    doc="Name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration.",
)
WEBHOOK_FAILURE_POLICY = ENV.choice(
    "IPUHUB_WEBHOOK_FAILURE_POLICY",
    "Fail",
    ("Fail", "Ignore"),
    doc="What the API server does while no webhook answers: reject requests (Fail) or accept "
    "them (Ignore).",
)
WEBHOOK_TIMEOUT_SECONDS = ENV.integer(
    "IPUHUB_WEBHOOK_TIMEOUT_SECONDS",
    10,
    minimum=1,
    doc="How long the API server waits for a webhook to answer; at most 30.",
)
if WEBHOOK_TIMEOUT_SECONDS > LONGEST_WEBHOOK_TIMEOUT_SECONDS:
    raise SettingError(
        f"IPUHUB_WEBHOOK_TIMEOUT_SECONDS is {WEBHOOK_TIMEOUT_SECONDS}: Kubernetes allows "
        f"{LONGEST_WEBHOOK_TIMEOUT_SECONDS} at most"
    )
WEBHOOK_DRAIN_SECONDS = ENV.number(
    "IPUHUB_WEBHOOK_DRAIN_SECONDS",
    0.0,
    minimum=0,
    doc="How long the webhooks still answer after SIGTERM, until API servers have heard that the "
    "replica is going. The Helm chart sets 5.",
)
WEBHOOK_SKIPPED_NAMESPACES = ENV.words(
    "IPUHUB_WEBHOOK_SKIPPED_NAMESPACES",
    ["kube-system", "ipuhub-system"],
    doc="Namespaces whose IPUJobs are not sent to the webhooks.",
)
WEBHOOK_NAMESPACES = ENV.words(
    "IPUHUB_WEBHOOK_NAMESPACES",
    [],
    doc="Namespaces whose IPUJobs are sent to the webhooks; empty: all. "
    "IPUHUB_WEBHOOK_SKIPPED_NAMESPACES takes precedence.",
)
WEBHOOK_EXEMPT_USERS = ENV.words(
    "IPUHUB_WEBHOOK_EXEMPT_USERS",
    [],
    doc="Users whose requests are not sent to the webhooks, such as "
    "system:serviceaccount:ipuhub-system:ipuhub-operator: the operator then works while no "
    "webhook answers.",
)
