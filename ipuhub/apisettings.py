"""glue: the part of Django's settings that no environment variable touches: those of the API."""

from __future__ import annotations

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "ipuhub.api.auth.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["ipuhub.api.permissions.IsSignedIn"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["ipuhub.api.parsing.JsonBody"],
    "DEFAULT_FILTER_BACKENDS": ["ipuhub.api.filtering.PageFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "ipuhub.api.paging.KeysetPagination",
    "DEFAULT_SCHEMA_CLASS": "ipuhub.api.schema.Described",
    "EXCEPTION_HANDLER": "ipuhub.api.problems.handle_exception",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "IPUHub",
    "DESCRIPTION": "Jobs, partitions and usage. Send `Authorization: Bearer <API token>`. "
    "Errors are application/problem+json with a sentence in `detail`. A query "
    "parameter without a value is as if it were not given.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",  # 3.0 has no way to say that a nested object may be null
    "SERVERS": [{"url": "/", "description": "The server that hands out this document."}],
    "CONTACT": {"name": "The administrators of this installation"},
    "LICENSE": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
    "TAGS": [
        {"name": "capacity", "description": "IPUs of each V-IPU controller."},
        {"name": "jobs", "description": "IPUJobs, their pods and what they used."},
        {"name": "partitions", "description": "Partitions that jobs hold and held."},
        {"name": "query", "description": "How many partitions of a size fit."},
        {"name": "stats", "description": "IPUs held and free."},
        {"name": "usage", "description": "Usage, cost, month reports and rates."},
    ],
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["ipuhub.api.permissions.IsSignedIn"],
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {"JobState": "jobs.states.STATES"},  # `state` of other things, too
}
