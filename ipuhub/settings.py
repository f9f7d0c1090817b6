"""glue: Django's settings; every environment variable of the product is declared here.

Nothing below the composition roots reads settings: commands pass plain values to constructors.
"""

from __future__ import annotations

import os
from pathlib import Path

from ipuhub.apisettings import REST_FRAMEWORK, SPECTACULAR_SETTINGS  # noqa: F401  # Django's
from ipuhub.database import database_settings
from ipuhub.env import Env

BASE_DIR = Path(__file__).resolve().parent.parent
ENV = env = Env(os.environ)

# --- Kubernetes -------------------------------------------------------------------------------
KUBECONFIG = env.text(
    "KUBECONFIG", "", doc="Kubeconfig file; empty: in-cluster credentials, else ~/.kube/config."
)
KUBE_CONTEXT = env.text(
    "IPUHUB_KUBE_CONTEXT", "", doc="Kubeconfig context; empty: the current one."
)
NAMESPACE = env.text(
    "IPUHUB_NAMESPACE", "ipuhub-system", doc="Namespace of IPUHub's own objects (tracker, leases)."
)
SERVICE_ACCOUNT = env.text(
    "IPUHUB_SERVICE_ACCOUNT",
    "",
    doc="Own service account, to request a proxy token for where IPUHUB_PROXY_TOKEN is not set.",
)

# --- Processes --------------------------------------------------------------------------------
HEALTH_HOST = env.text("IPUHUB_HEALTH_HOST", "127.0.0.1", doc="Address of /healthz and /readyz.")
HEALTH_PORT = env.integer(
    "IPUHUB_HEALTH_PORT", 8081, minimum=0, doc="Port of /healthz and /readyz; 0: any free."
)
LOG_LEVEL = env.choice(
    "IPUHUB_LOG_LEVEL",
    "info",
    ("debug", "info", "warning", "error"),
    doc="Least severe log line shown.",
)
LOG_FORMAT = env.choice("IPUHUB_LOG_FORMAT", "text", ("text", "json"), doc="Form of log lines.")

# --- Leader election --------------------------------------------------------------------------
LEADER_ELECTION = env.switch(
    "IPUHUB_LEADER_ELECTION",
    True,
    doc="Of several operators, proxies or probers one works, the others stand by (a Lease in "
    "IPUHUB_NAMESPACE); off: there is never a second one.",
)
IDENTITY = env.text(
    "IPUHUB_IDENTITY",
    "",
    doc="Name of this replica in the Lease; empty: the host's with a random part. A process that "
    "is started again under a fixed name takes its own Lease back at once; no two may share one.",
)
LEASE_DURATION_SECONDS = env.integer(
    "IPUHUB_LEASE_DURATION_SECONDS",
    15,
    minimum=1,
    doc="How long a leader that says nothing keeps the Lease.",
)
LEASE_RENEW_SECONDS = env.number(
    "IPUHUB_LEASE_RENEW_SECONDS",
    10.0,
    doc="How long a leader tries to renew the Lease before it stops; less than its duration.",
)
LEASE_RETRY_SECONDS = env.number(
    "IPUHUB_LEASE_RETRY_SECONDS",
    2.0,
    doc="Time between two tries to take or renew the Lease; less than the time to renew.",
)

# --- Operator ---------------------------------------------------------------------------------
PROXY_URL = env.text(
    "IPUHUB_PROXY_URL", "http://127.0.0.1:8080", doc="Where the V-IPU Proxy answers."
)
PROXY_TOKEN = env.text(
    "IPUHUB_PROXY_TOKEN",
    "",
    doc="Token for the proxy (audience ipuhub-proxy), usually IPUHUB_PROXY_TOKEN_FILE.",
)
OPERATOR_CONCURRENCY = env.integer(
    "IPUHUB_OPERATOR_CONCURRENCY", 16, minimum=1, doc="IPUJobs reconciled at the same time."
)
PARTITION_POLL_SECONDS = env.number(
    "IPUHUB_PARTITION_POLL_SECONDS",
    2.0,
    doc="How often the operator asks the proxy for all partitions.",
)
HOST_NETWORK = env.switch(
    "IPUHUB_HOST_NETWORK",
    True,
    doc="Job pods use the host network unless their template says otherwise.",
)
POD_PROFILE = env.choice(
    "IPUHUB_POD_PROFILE",
    "default",
    ("default", "seed"),
    doc="default: IPC_LOCK only; seed: privileged pods, as the first IPU Operator made them.",
)
LAUNCHER_IMAGE = env.text(
    "IPUHUB_LAUNCHER_IMAGE", "ipuhub:latest", doc="Image of the launcher's init container."
)
LAUNCHER_IMAGE_PULL_POLICY = env.choice(
    "IPUHUB_LAUNCHER_IMAGE_PULL_POLICY",
    "IfNotPresent",
    ("Always", "IfNotPresent", "Never"),
    doc="Its pull policy.",
)
LAUNCHER_WAIT_SECONDS = env.number(
    "IPUHUB_LAUNCHER_WAIT_SECONDS",
    0.0,
    doc="How long a launcher waits for its workers before its job fails; 0: without end.",
)
VIPU_TIMEOUT_SECONDS = env.integer(
    "IPUHUB_VIPU_TIMEOUT_SECONDS", 120, minimum=1, doc="IPUOF_VIPU_API_TIMEOUT of job pods."
)

# --- Prober ---------------------------------------------------------------------------------
CAPACITY_POLL_SECONDS = env.number(
    "IPUHUB_CAPACITY_POLL_SECONDS",
    10.0,
    doc="How often the prober asks the proxy how many IPUs there are and are free.",
)
USAGE_NAMESPACES = env.words(
    "USAGE_NAMESPACES", [], doc="Namespaces whose pods are recorded; empty: all."
)
USAGE_ALL_PODS = env.switch(
    "USAGE_ALL_PODS", False, doc="Record all pods, not only those with a usage annotation."
)
USAGE_GPU_RESOURCES = env.words(
    "USAGE_GPU_RESOURCES",
    ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/*"],
    doc="Resources counted as accelerators; a * at the end stands for anything.",
)
TRUST_CREATED_BY = env.switch(
    "IPUHUB_TRUST_CREATED_BY",
    False,
    doc="Usage counts as verified: on only where the admission webhooks stamp who makes a job.",
)
PROBER_BATCH_SECONDS = env.number(
    "IPUHUB_PROBER_BATCH_SECONDS", 0.2, doc="How old a change gets before it is committed."
)
PROBER_BATCH_EVENTS = env.integer(
    "IPUHUB_PROBER_BATCH_EVENTS", 1000, minimum=1, doc="Changes that are committed at once."
)

# --- Webhooks ---------------------------------------------------------------------------------
WEBHOOK_HOST = env.text("IPUHUB_WEBHOOK_HOST", "127.0.0.1", doc="Address of the webhooks.")
WEBHOOK_PORT = env.integer("IPUHUB_WEBHOOK_PORT", 9443, minimum=0, doc="Port of the webhooks.")
WEBHOOK_CERTIFICATE_PATH = env.text(
    "IPUHUB_WEBHOOK_CERTIFICATE_PATH",
    "",
    doc="Their TLS certificate, PEM; a changed file is taken up without a restart.",
)
WEBHOOK_KEY_PATH = env.text("IPUHUB_WEBHOOK_KEY_PATH", "", doc="Its private key, PEM.")
PRIVILEGED_NAMESPACES = env.words(
    "IPUHUB_PRIVILEGED_NAMESPACES",
    [],
    doc="Namespaces whose jobs may ask for privileged containers and the host's namespaces.",
)

# --- V-IPU Proxy ------------------------------------------------------------------------------
PROXY_HOST = env.text("PROXY_HOST", "127.0.0.1", doc="Address the V-IPU Proxy listens on.")
PROXY_PORT = env.integer("PROXY_PORT", 8080, minimum=0, doc="Port the V-IPU Proxy listens on.")
VIPU_CONTROLLERS = env.text(
    "IPUHUB_VIPU_CONTROLLERS",
    "",
    doc="V-IPU controllers, host:port:label=value, comma-separated.",
)
VIPU_CONTROLLERS_PATH = env.text(
    "IPUHUB_VIPU_CONTROLLERS_PATH",
    "",
    doc="File with that list instead; an edit takes effect within 60 s.",
)
TRACKER_CONFIGMAP = env.text(
    "IPUHUB_TRACKER_CONFIGMAP", "ipu-partitions-tracker", doc="Name of the tracker ConfigMap."
)
TRACKER_TOMBSTONE_SECONDS = env.integer(
    "IPUHUB_TRACKER_TOMBSTONE_SECONDS",
    900,
    minimum=0,
    doc="How long a released partition stays in the tracker at least.",
)
TRACKER_RECORDER = env.switch(
    "IPUHUB_TRACKER_RECORDER",
    False,
    doc="Keep a released partition in the tracker until a recorder acknowledges it, too.",
)
SWEEP_SECONDS = env.number(
    "IPUHUB_SWEEP_SECONDS", 60.0, doc="How often tracker and controllers are compared."
)
VIPU_DEADLINE_SECONDS = env.number(
    "IPUHUB_VIPU_DEADLINE_SECONDS", 10.0, doc="Deadline of one call to a V-IPU controller."
)
VIPU_CLUSTER_NAME = env.text(
    "IPUHUB_VIPU_CLUSTER_NAME", "", doc="cluster_id of new partitions; empty: any."
)
VIPU_ALLOCATION_ID = env.text(
    "IPUHUB_VIPU_ALLOCATION_ID", "", doc="allocation_id of new partitions; empty: any."
)
VIPU_NUM_GCDS = env.integer(
    "IPUHUB_VIPU_NUM_GCDS",
    0,
    minimum=0,
    doc="GCDs of new partitions; 0: the controller's default.",
)
VIPU_NUM_REPLICAS = env.integer(
    "IPUHUB_VIPU_NUM_REPLICAS",
    0,
    minimum=0,
    doc="Replicas of new partitions over all GCDs; 0: the controller's default.",
)
VIPU_RECONFIGURABLE = env.switch(
    "IPUHUB_VIPU_RECONFIGURABLE", False, doc="New partitions are reconfigurable."
)
PLACEMENT = env.choice(
    "IPUHUB_PLACEMENT",
    "first-fit",
    ("first-fit", "best-fit"),
    doc="Which V-IPU controller is tried first: as listed, or with the smallest free block.",
)

# --- Reports ----------------------------------------------------------------------------------
REPORT_ZONE = env.zone(
    "IPUHUB_REPORT_ZONE",
    "UTC",
    doc="Time zone of the month reports: when a month begins, and when the daily run is.",
)
BROKER_URL = env.text(
    "IPUHUB_BROKER_URL",
    "filesystem://localhost",
    doc="Where tasks wait for the worker: redis://, amqp://, or the file system of one machine.",
)
BROKER_FOLDER = env.text(
    "IPUHUB_BROKER_FOLDER",
    str(BASE_DIR / ".ipuhub" / "celery"),
    doc="Folder of the file-system broker, for web and worker alike; made when it is missing.",
)

# --- Web --------------------------------------------------------------------------------------
DEBUG = env.switch("IPUHUB_DEBUG", False, doc="Django's debug mode; never in production.")
SECRET_KEY = env.text(
    "IPUHUB_SECRET_KEY",
    "",
    doc="Django's secret key, usually IPUHUB_SECRET_KEY_FILE. Only the web process needs it.",
)
ALLOWED_HOSTS = env.words(
    "IPUHUB_ALLOWED_HOSTS",
    ["localhost", "127.0.0.1", "[::1]"],
    doc="Host names the web process answers to.",
)
DATABASE_URL = env.text(
    "DATABASE_URL",
    "",
    doc="postgresql://user:password@host:port/name (PostgreSQL 15 or later); "
    "operator, proxy and V-IPU need none.",
)

WEB_HOST = env.text("IPUHUB_WEB_HOST", "127.0.0.1", doc="Address the dashboard listens on.")
WEB_PORT = env.integer("IPUHUB_WEB_PORT", 8000, minimum=0, doc="Port the dashboard listens on.")
WEB_THREADS = env.integer(
    "IPUHUB_WEB_THREADS", 4, minimum=1, doc="Requests the web process serves at the same time."
)
HTTPS = env.switch(
    "IPUHUB_HTTPS",
    True,
    doc="Browsers reach the dashboard by HTTPS: secure cookies, HSTS, redirect.",
)
TRUST_FORWARDED_PROTO = env.switch(
    "IPUHUB_TRUST_FORWARDED_PROTO",
    False,
    doc="A proxy in front sets X-Forwarded-Proto and removes the one of clients.",
)
ADMIN_PASSWORD = env.text(
    "IPUHUB_ADMIN_PASSWORD", "", doc="Creates the user admin with this password if there is none."
)
METRICS_TOKEN = env.text(
    "IPUHUB_METRICS_TOKEN",
    "",
    doc="Bearer token that may read /metrics of every process, usually "
    "IPUHUB_METRICS_TOKEN_FILE. The web process also takes an administrator's API token, the "
    "others whoever may get /metrics by Kubernetes' RBAC.",
)

DATABASES = {"default": database_settings(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "django_filters",
    "django_prometheus",
    "ipuhub",
    "jobs",
    "partitions",
    "usage",
]
MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "ipuhub.web.nav.navigation",
            ],
        },
    },
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
ROOT_URLCONF = "ipuhub.urls"
WSGI_APPLICATION = "ipuhub.wsgi.application"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
MESSAGE_TAGS = {40: "danger"}  # Tabler has no alert-error
USE_TZ = True
TIME_ZONE = "UTC"
LOGGING_CONFIG = None  # ipuhub.logs, called by each command
STATIC_URL = "static/"
STATIC_ROOT = (
    env.text(
        "IPUHUB_STATIC_ROOT",
        "",
        doc="Folder of `manage.py collectstatic`; empty: served from the packages.",
    )
    or None
)
WHITENOISE_USE_FINDERS = True

SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = HTTPS
CSRF_FAILURE_VIEW = "ipuhub.web.problems.csrf_failure"
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^metrics$"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SECURE_REFERRER_POLICY = "same-origin"
if TRUST_FORWARDED_PROTO:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}
