"""The imports of a forked process (tests/fakes/forked.py): nothing that reads a setting."""

from __future__ import annotations

import gc

import aiohttp.web  # noqa: F401
import celery.apps.beat
import celery.bin.celery
import celery.worker.worker  # noqa: F401
import django.contrib.auth.hashers
import django.core.management
import django.db.backends.postgresql.base
import django.forms
import django.template.defaulttags
import django.views.generic  # noqa: F401
import google.protobuf.json_format  # noqa: F401
import grpc.aio  # noqa: F401
import msgspec  # noqa: F401
import orjson  # noqa: F401
import prometheus_client  # noqa: F401
import psycopg_pool  # noqa: F401
import structlog  # noqa: F401
import yaml  # noqa: F401

import usage.pods.recorder  # noqa: F401

# A fork looks at none of this for garbage: it would copy every page that it looks at.
gc.collect()
gc.freeze()
