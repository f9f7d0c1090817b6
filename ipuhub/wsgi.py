"""glue: the WSGI application that the web server imports."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipuhub.settings")
application = get_wsgi_application()
