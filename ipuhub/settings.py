"""glue: Django's settings; environment variables are declared in ipuhub/variables.

Only composition roots read settings: commands pass plain values to constructors.
"""

from __future__ import annotations

from pathlib import Path

from ipuhub.database import database_settings
from ipuhub.variables import BASE_DIR, ENV
from ipuhub.variables.access import *  # noqa: F403
from ipuhub.variables.actions import *  # noqa: F403
from ipuhub.variables.jobs import *  # noqa: F403
from ipuhub.variables.metering import *  # noqa: F403
from ipuhub.variables.metering import USAGE_OPEN_PRIMEHUB_PATHS
from ipuhub.variables.notify import *  # noqa: F403
from ipuhub.variables.partitions import *  # noqa: F403
from ipuhub.variables.processes import *  # noqa: F403
from ipuhub.variables.signin import *  # noqa: F403
from ipuhub.variables.web import *  # noqa: F403
from ipuhub.variables.web import (
    DATABASE_TLS,
    DATABASE_URL,
    HSTS_PRELOAD,
    HSTS_SUBDOMAINS,
    HTTPS,
    TRUST_FORWARDED_PROTO,
)

IS_CHECKOUT = (BASE_DIR / "manage.py").exists()
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "ipuhub.api.auth.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["ipuhub.api.auth.IsSignedIn"],
    "DEFAULT_THROTTLE_CLASSES": ["ipuhub.api.limits.PerCaller"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["ipuhub.api.parsing.JsonBody"],
    "DEFAULT_FILTER_BACKENDS": ["ipuhub.api.parsing.PageFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "ipuhub.api.paging.KeysetPagination",
    "DEFAULT_SCHEMA_CLASS": "ipuhub.api.schema.Described",
    "EXCEPTION_HANDLER": "ipuhub.api.problems.handle_exception",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "IPUHub",
    "DESCRIPTION": "Jobs, partitions and usage. Send `Authorization: Bearer <API token>`. "
    "Errors are application/problem+json with a sentence in `detail`. A query parameter without "
    "a value is ignored.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",  # 3.0 has no way to say that a nested object may be null
    "SERVERS": [{"url": "/", "description": "The server that serves this document."}],
    "CONTACT": {"name": "The administrators of this installation"},
    "LICENSE": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
    "TAGS": [
        {"name": "audit", "description": "Who changed which job, and what came of it."},
        {"name": "capacity", "description": "IPUs of each V-IPU controller."},
        {"name": "components", "description": "Which component of IPUHub is down."},
        {"name": "fleet", "description": "Each IPU with its job, the queue, and what fits."},
        {"name": "jobs", "description": "IPUJobs, their pods and their usage."},
        {"name": "notifications", "description": "Subscriptions, and the messages that were sent."},
        {"name": "partitions", "description": "Current and past partitions of jobs."},
        {"name": "query", "description": "How many partitions of a size fit."},
        {"name": "search", "description": "Jobs, machines, users and more by part of a name."},
        {"name": "stats", "description": "IPUs held and free."},
        {"name": "usage", "description": "Usage, cost, month reports and rates."},
        {"name": "users", "description": "Users with their roles, and API tokens."},
    ],
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["ipuhub.api.auth.IsSignedIn"],
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {  # `state` and `kind` are of several things
        "JobState": "jobs.selectors.STATES",
        "IpuState": "dashboard.fleetmap.IPU_STATES",
        "MachineState": "dashboard.machines.facts.MACHINE_STATES",
        "ComponentState": "dashboard.components.STATES",
        "WaitingKind": "dashboard.fleetqueue.KINDS",
        "FoundKind": "dashboard.search.KINDS",
        "FitKind": "dashboard.fleetfits.FIT_KINDS",
    },
}
DATABASES = {"default": database_settings(DATABASE_URL, DATABASE_TLS)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "ipuhub",  # before django.contrib.auth: its changepassword finds the demo's database
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
    "jobs",
    "partitions",
    "usage",
    "dashboard",
    "devcluster",  # for its commands
]
MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "ipuhub.web.middleware.AnswerProbes",  # before SecurityMiddleware and whoever looks at the host
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "ipuhub.web.middleware.KeepPrivate",  # after WhiteNoise: static files are everybody's
    "ipuhub.web.middleware.CompressAnswers",  # outside what computes ETags
    "csp.middleware.CSPMiddleware",
    "ipuhub.web.middleware.DownloadSlots",  # after WhiteNoise: static files are no downloads
    "ipuhub.web.middleware.RefuseUndecodableQueries",
    "ipuhub.web.middleware.ConditionalReads",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "ipuhub.oidc.headers.HeaderSignIn",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "ipuhub.web.middleware.RecordRefusals",  # inside who the user is
    "ipuhub.web.middleware.RefuseTooManyHashes",
    "ipuhub.web.middleware.CountRequests",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / ("templates" if IS_CHECKOUT else "ipuhub/templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.nav.navigation",
            ],
        },
    },
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
PASSWORD_HASHERS = ["ipuhub.web.hashing.BoundedHasher"]
ROOT_URLCONF = "ipuhub.urls"
WSGI_APPLICATION = "ipuhub.wsgi.application"
# What apps need of each other, by name: none imports another.
PROXY_CLIENT = "partitions.client.ProxyClient"
RECORDERS = {
    "jobs": "jobs.history.recorder.JobRecorder",
    "partitions": "partitions.history.recording.PartitionHistory",
    "events": "jobs.history.events.EventFollower",
}
CLUSTER_AUTHORITY = "dashboard.clusteraccess.authority"
DEMO_FOLDER = BASE_DIR / ".ipuhub" if IS_CHECKOUT else Path(".ipuhub").absolute()
DEMO_DATABASE_URL = "devcluster.demo.postgres.url_of"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
MESSAGE_TAGS = {40: "danger"}  # Tabler has no alert-error
USE_TZ = True
TIME_ZONE = "UTC"
LOGGING_CONFIG = None  # ipuhub.process.logs, called by each command
STATIC_URL = "static/"
STATIC_ROOT = (
    ENV.text(
        "IPUHUB_STATIC_ROOT",
        "",
        doc="Folder of `manage.py collectstatic`. run_web fills it if it is empty. Not set: a "
        "temporary folder at each start.",
    )
    or None
)
WHITENOISE_USE_FINDERS = True
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "ipuhub.web.statics.Statics"},
}
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = HTTPS
CSRF_FAILURE_VIEW = "ipuhub.web.problems.csrf_failure"
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$", "^metrics$", "^health$"]
if USAGE_OPEN_PRIMEHUB_PATHS:
    SECURE_REDIRECT_EXEMPT.append("^report/monthly")  # its reader carries no secret over the wire
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HSTS_SUBDOMAINS
SECURE_HSTS_PRELOAD = HSTS_PRELOAD
# What HSTS says of other hosts is their owner's decision (IPUHUB_HSTS_SUBDOMAINS, _PRELOAD): no
# finding of `check --deploy`.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
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
