"""glue: `/healthz` and `/readyz` of the web process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import DatabaseError, connection
from django.http import HttpResponse
from django.views.decorators.http import require_safe

if TYPE_CHECKING:
    from django.http import HttpRequest


@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer ok while the process serves requests."""
    return HttpResponse("ok", content_type="text/plain")


@require_safe
def readyz(_request: HttpRequest) -> HttpResponse:
    """Answer ok while PostgreSQL answers; without the API server pages show the last data."""
    return database_answer("ok", 503)


def database_answer(word: str, status: int) -> HttpResponse:
    """Return `word` while PostgreSQL answers, else a line that says so with `status`."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        word = "postgres: does not answer\n"
        return HttpResponse(word, status=status, content_type="text/plain")
    return HttpResponse(word, content_type="text/plain")
