"""glue: settings of the web process."""

from __future__ import annotations

from ipuhub.database import database_tls
from ipuhub.env import SettingError
from ipuhub.variables import ENV
from ipuhub.variables.metering import PRIMEHUB_DATABASE_URL

ENV.read_by("Dashboard")
DEBUG = ENV.switch(
    "IPUHUB_DEBUG", False, doc="Django's debug mode. Never turn it on in production."
)
SECRET_KEY = ENV.text(
    "IPUHUB_SECRET_KEY",
    "",
    doc="Django's secret key, usually given as IPUHUB_SECRET_KEY_FILE. Only the web process "
    "needs it.",
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
        doc="postgresql://user:password@host:port/name (PostgreSQL 15 or later). Operator, "
        "webhooks and V-IPU Proxy need no database.",
    )
    or PRIMEHUB_DATABASE_URL
)
DATABASE_TLS = database_tls(
    ENV.choice(
        "IPUHUB_DATABASE_SSLMODE",
        "auto",
        ("auto", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        doc="How connections to PostgreSQL use TLS (sslmode). auto: verify-full with "
        "IPUHUB_DATABASE_CA_PATH, otherwise prefer. Parameters in DATABASE_URL take precedence "
        "over the settings IPUHUB_DATABASE_*, but with a CA a weaker sslmode is refused.",
    ),
    ENV.text(
        "IPUHUB_DATABASE_CA_PATH",
        "",
        doc="File with the CA certificates that verify PostgreSQL's certificate (PEM), or "
        "`system`: the operating system's.",
    ),
    ENV.text(
        "IPUHUB_DATABASE_CERTIFICATE_PATH",
        "",
        doc="File with a client certificate for PostgreSQL (PEM).",
    ),
    ENV.text(
        "IPUHUB_DATABASE_KEY_PATH",
        "",
        doc="File with the private key of IPUHUB_DATABASE_CERTIFICATE_PATH (PEM). Others must not "
        "be able to read it: mode 0600, or 0640 if root owns it.",
    ),
)

ENV.read_by("Dashboard")
DATABASE_WAIT_SECONDS = ENV.number(
    "IPUHUB_DATABASE_WAIT_SECONDS",
    0.0,
    doc="How long run_web waits at its start until PostgreSQL answers. 0: run_web ends at once.",
)
WEB_HOST = ENV.text(
    "IPUHUB_WEB_HOST",
    "127.0.0.1",
    doc="Address the dashboard listens on. `::` stands for every address of IPv6 and IPv4.",
)
WEB_PORT = ENV.port("IPUHUB_WEB_PORT", 8000, doc="Port the dashboard listens on.")
WEB_DRAIN_SECONDS = ENV.number(
    "IPUHUB_WEB_DRAIN_SECONDS",
    0.0,
    minimum=0,
    doc="How long the dashboard still answers after SIGTERM, until a load balancer has heard that "
    "the replica is going; then it finishes current requests for up to 20 s. The Helm chart sets "
    "5.",
)
WEB_THREADS = ENV.integer(
    "IPUHUB_WEB_THREADS", 8, minimum=1, doc="Requests the web process serves at the same time."
)
WEB_CONNECTIONS = ENV.integer(
    "IPUHUB_WEB_CONNECTIONS",
    400,
    minimum=1,
    doc="Connections with a request at the same time. Beyond that, only probes are answered and "
    "other requests are rejected (503, Retry-After). A new connection replaces an idle "
    "connection.",
)
WEB_HEAD_SECONDS = ENV.integer(
    "IPUHUB_WEB_HEAD_SECONDS",
    20,
    minimum=1,
    doc="How long a connection may take to send the head of its next request before the server "
    "closes it.",
)
WEB_BODY_SECONDS = ENV.integer(
    "IPUHUB_WEB_BODY_SECONDS",
    20,
    minimum=1,
    doc="How long a request may take to send its body; a slower request is rejected (408). No "
    "thread waits for an incomplete body.",
)
WEB_BODY_BYTES = ENV.integer(
    "IPUHUB_WEB_BODY_BYTES",
    4 * 1024 * 1024,
    minimum=1024,
    doc="Largest request body in bytes; a larger body is rejected (413).",
)
WEB_QUEUE_SECONDS = ENV.integer(
    "IPUHUB_WEB_QUEUE_SECONDS",
    30,
    minimum=1,
    doc="How long a request waits for a free thread before it is rejected (503, Retry-After).",
)
API_REQUESTS_PER_MINUTE = ENV.integer(
    "IPUHUB_API_REQUESTS_PER_MINUTE",
    1200,
    minimum=0,
    doc="API requests per minute of one token, or of one user without a token; further requests "
    "are rejected (429, Retry-After). Each web process counts for itself. 0: no limit.",
)
WEB_QUERY_SECONDS = ENV.integer(
    "IPUHUB_WEB_QUERY_SECONDS",
    30,
    minimum=1,
    doc="Longest time of one PostgreSQL query of a page or of the API (statement_timeout). Sums "
    "of usage use USAGE_QUERY_SECONDS, downloads use IPUHUB_WEB_DOWNLOAD_SECONDS.",
)
WEB_AHEAD_MEBIBYTES = ENV.integer(
    "IPUHUB_WEB_AHEAD_MEBIBYTES",
    512,
    minimum=0,
    doc="Space in temporary files, in MiB, that buffers downloads whose readers are slower than "
    "the server; one download uses at most an eighth. A buffered download needs no thread.",
)
WEB_DOWNLOADS = ENV.integer(
    "IPUHUB_WEB_DOWNLOADS",
    3,
    minimum=1,
    doc="Files the web process streams at the same time; always fewer than IPUHUB_WEB_THREADS. "
    "Further downloads are rejected (503, Retry-After).",
)
WEB_UNREAD_SECONDS = ENV.integer(
    "IPUHUB_WEB_UNREAD_SECONDS",
    60,
    minimum=1,
    doc="How long a reader may take nothing before its download is aborted (Linux only).",
)
WEB_DOWNLOAD_SECONDS = ENV.integer(
    "IPUHUB_WEB_DOWNLOAD_SECONDS",
    3600,
    minimum=1,
    doc="Longest time of a download. A longer download is aborted, so that it cannot block "
    "others forever.",
)
JOB_LOGS = ENV.switch(
    "IPUHUB_JOB_LOGS",
    True,
    doc="Whether the dashboard and the API show logs of a job's pods to users who see the job. The "
    "web process needs `get` on `pods` and `pods/log`.",
)
WEBHOOK_ADDRESS = ENV.text(
    "IPUHUB_WEBHOOK_ADDRESS",
    "",
    doc="host:port at which the API server reaches the webhooks. The dashboard sees by a TLS "
    "handshake whether they answer, and reads their version there. Empty: only webhooks with a "
    "Lease are shown.",
)
if WEBHOOK_ADDRESS and not WEBHOOK_ADDRESS.rpartition(":")[2].isdigit():
    raise SettingError(f"IPUHUB_WEBHOOK_ADDRESS must be host:port, not {WEBHOOK_ADDRESS!r}")
HTTPS = ENV.switch(
    "IPUHUB_HTTPS",
    True,
    doc="Whether browsers reach the dashboard by HTTPS. Turns on secure cookies, HSTS and the "
    "redirect to HTTPS.",
)
HSTS_SUBDOMAINS = ENV.switch(
    "IPUHUB_HSTS_SUBDOMAINS",
    False,
    doc="Whether HSTS covers the subdomains of the dashboard's host, too. Browsers then reach all "
    "of them by HTTPS only, for a year.",
)
HSTS_PRELOAD = ENV.switch(
    "IPUHUB_HSTS_PRELOAD",
    False,
    doc="Whether the host may be put on the browsers' preload list of HSTS, which is hard to undo. "
    "Needs IPUHUB_HSTS_SUBDOMAINS.",
)
if HSTS_PRELOAD and not HSTS_SUBDOMAINS:
    raise SettingError(
        "IPUHUB_HSTS_PRELOAD is on and IPUHUB_HSTS_SUBDOMAINS is off: browsers take no such host "
        "into their list; turn on both or none"
    )
TRUST_FORWARDED_PROTO = ENV.switch(
    "IPUHUB_TRUST_FORWARDED_PROTO",
    False,
    doc="Trust X-Forwarded-Proto. Turn it on only behind a proxy that sets the header and "
    "removes any value clients send.",
)
TRUSTED_PROXIES = ENV.networks(
    "IPUHUB_TRUSTED_PROXIES",
    doc="Networks of the proxies in front whose X-Forwarded-For is trusted.",
)
LOGIN_FAILURES = ENV.integer(
    "IPUHUB_LOGIN_FAILURES",
    5,
    minimum=1,
    doc="Failed sign-ins of one user from one address before further attempts are rejected for a"
    " while (429). The limit per address, and per user over all addresses, is ten times as "
    "high.",
)
LOGIN_LOCKOUT_SECONDS = ENV.integer(
    "IPUHUB_LOGIN_LOCKOUT_SECONDS",
    900,
    minimum=1,
    doc="Longest time for which sign-ins are rejected. The first lockout takes 30 s; each "
    "further failure doubles it. Failures are forgotten after a success, or after this time "
    "without a failure.",
)
ADMIN_PASSWORD = ENV.text(
    "IPUHUB_ADMIN_PASSWORD",
    "",
    doc="Creates the user admin with this password if that user does not exist.",
)
ENV.read_by("Every process")
METRICS_TOKEN = ENV.text(
    "IPUHUB_METRICS_TOKEN",
    "",
    doc="Bearer token that may read /metrics of every process, usually given as "
    "IPUHUB_METRICS_TOKEN_FILE. Accounts that Kubernetes RBAC allows to get /metrics may "
    "read it, too. The web process also accepts an administrator's API token.",
)
