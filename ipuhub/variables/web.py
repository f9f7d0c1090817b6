"""glue: what the web process reads."""

from __future__ import annotations

from ipuhub.variables import ENV
from ipuhub.variables.metering import PRIMEHUB_DATABASE_URL

ENV.read_by("Dashboard")
DEBUG = ENV.switch("IPUHUB_DEBUG", False, doc="Django's debug mode; never in production.")
SECRET_KEY = ENV.text(
    "IPUHUB_SECRET_KEY",
    "",
    doc="Django's secret key, usually IPUHUB_SECRET_KEY_FILE. Only the web process needs it.",
)
ALLOWED_HOSTS = ENV.words(
    "IPUHUB_ALLOWED_HOSTS",
    ["localhost", "127.0.0.1", "[::1]"],
    doc="Host names the web process answers to.",
)
ENV.read_by("Prober, monitor, worker and dashboard")
DATABASE_URL = (
    ENV.text(
        "DATABASE_URL",
        "",
        doc="postgresql://user:password@host:port/name (PostgreSQL 15 or later); "
        "operator, proxy and V-IPU need none.",
    )
    or PRIMEHUB_DATABASE_URL
)

ENV.read_by("Dashboard")
WEB_HOST = ENV.text("IPUHUB_WEB_HOST", "127.0.0.1", doc="Address the dashboard listens on.")
WEB_PORT = ENV.integer("IPUHUB_WEB_PORT", 8000, minimum=0, doc="Port the dashboard listens on.")
WEB_THREADS = ENV.integer(
    "IPUHUB_WEB_THREADS", 8, minimum=1, doc="Requests the web process serves at the same time."
)
WEB_CONNECTIONS = ENV.integer(
    "IPUHUB_WEB_CONNECTIONS",
    400,
    minimum=1,
    doc="Connections with a request at the same time; beyond that only probes are answered, others "
    "are refused (503, Retry-After). A new connection takes the place of a silent one.",
)
WEB_HEAD_SECONDS = ENV.integer(
    "IPUHUB_WEB_HEAD_SECONDS",
    20,
    minimum=1,
    doc="Time that a connection has for the head of its next request; then it is ended.",
)
WEB_BODY_SECONDS = ENV.integer(
    "IPUHUB_WEB_BODY_SECONDS",
    20,
    minimum=1,
    doc="Time that a request has for its whole body; then it is refused (408). Until it is whole, "
    "no thread waits for it.",
)
WEB_BODY_BYTES = ENV.integer(
    "IPUHUB_WEB_BODY_BYTES",
    4 * 1024 * 1024,
    minimum=1024,
    doc="Largest body of a request, in bytes; a larger one is refused (413).",
)
WEB_QUEUE_SECONDS = ENV.integer(
    "IPUHUB_WEB_QUEUE_SECONDS",
    30,
    minimum=1,
    doc="Time that a request waits for a free thread; then it is refused (503, Retry-After).",
)
WEB_QUERY_SECONDS = ENV.integer(
    "IPUHUB_WEB_QUERY_SECONDS",
    30,
    minimum=1,
    doc="Time that PostgreSQL has for one query of a page or of the API (statement_timeout); "
    "USAGE_QUERY_SECONDS counts for sums of usage, IPUHUB_WEB_DOWNLOAD_SECONDS for downloads.",
)
WEB_AHEAD_MEBIBYTES = ENV.integer(
    "IPUHUB_WEB_AHEAD_MEBIBYTES",
    512,
    minimum=0,
    doc="Space in temporary files for downloads that are made faster than they are read, all "
    "together in MiB; one takes an eighth at most. A download that is made holds no thread.",
)
WEB_DOWNLOADS = ENV.integer(
    "IPUHUB_WEB_DOWNLOADS",
    3,
    minimum=1,
    doc="Files the web process streams at the same time, at most one less than "
    "IPUHUB_WEB_THREADS; who asks for one more is told to come again (503, Retry-After).",
)
WEB_UNREAD_SECONDS = ENV.integer(
    "IPUHUB_WEB_UNREAD_SECONDS",
    60,
    minimum=1,
    doc="A download whose reader takes nothing for so long is ended (on Linux).",
)
WEB_DOWNLOAD_SECONDS = ENV.integer(
    "IPUHUB_WEB_DOWNLOAD_SECONDS",
    3600,
    minimum=1,
    doc="A download that takes longer is ended, unfinished; nobody keeps others out for ever.",
)
HTTPS = ENV.switch(
    "IPUHUB_HTTPS",
    True,
    doc="Browsers reach the dashboard by HTTPS: secure cookies, HSTS, redirect.",
)
TRUST_FORWARDED_PROTO = ENV.switch(
    "IPUHUB_TRUST_FORWARDED_PROTO",
    False,
    doc="A proxy in front sets X-Forwarded-Proto and removes the one of clients.",
)
TRUSTED_PROXIES = ENV.networks(
    "IPUHUB_TRUSTED_PROXIES",
    doc="Networks of the proxies in front whose X-Forwarded-For is believed.",
)
LOGIN_FAILURES = ENV.integer(
    "IPUHUB_LOGIN_FAILURES",
    5,
    minimum=1,
    doc="Failed sign-ins of one user at one address before the next ones are not tried for a while "
    "(429); ten times as many of one address, or of one user at all addresses.",
)
LOGIN_LOCKOUT_SECONDS = ENV.integer(
    "IPUHUB_LOGIN_LOCKOUT_SECONDS",
    900,
    minimum=1,
    doc="Longest time for which sign-ins are not tried: 30 s at first, doubled by each failure "
    "that follows. Failures are forgotten after that time without one, or after a success.",
)
ADMIN_PASSWORD = ENV.text(
    "IPUHUB_ADMIN_PASSWORD", "", doc="Creates the user admin with this password if there is none."
)
ENV.read_by("Every process")
METRICS_TOKEN = ENV.text(
    "IPUHUB_METRICS_TOKEN",
    "",
    doc="Bearer token that may read /metrics of every process, usually "
    "IPUHUB_METRICS_TOKEN_FILE; so may whoever may get /metrics by Kubernetes' RBAC. The web "
    "process also takes an administrator's API token.",
)
