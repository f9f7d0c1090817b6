"""glue: the part of Django's settings that no environment variable touches: those of the API."""

from __future__ import annotations

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "ipuhub.api.authentication.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["ipuhub.api.permissions.IsSignedIn"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["ipuhub.api.parsing.JsonBody"],
    "DEFAULT_FILTER_BACKENDS": ["ipuhub.api.filtering.PageFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "ipuhub.api.paging.KeysetPagination",
    "DEFAULT_SCHEMA_CLASS": "ipuhub.api.described.Described",
    "EXCEPTION_HANDLER": "ipuhub.api.problems.handle_exception",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "IPUHub",
    "DESCRIPTION": "Jobs, partitions and usage. Send `Authorization: Bearer <API token>`. "
    "Errors are application/problem+json with a sentence in `detail`. A query "
    "parameter without a value is as if it were not given.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["ipuhub.api.permissions.IsSignedIn"],
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {"JobState": "jobs.states.STATES"},  # `state` of other things, too
}
