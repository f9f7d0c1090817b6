"""glue: /metrics of the web process, for Prometheus with a token."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, cast

from django.conf import settings
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView

from ipuhub.api.authentication import bearer_token
from ipuhub.api.problems import problem_answer
from ipuhub.tokens import find_token

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

_HOW = "Send Authorization: Bearer <token>: IPUHUB_METRICS_TOKEN or an administrator's API token."


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics to who holds the metrics token or an administrator's API token."""
    text = bearer_token(request)
    if text is None:
        answer = problem_answer(401, _HOW)
        answer["WWW-Authenticate"] = 'Bearer realm="ipuhub"'
        return answer
    if not _may_read(text):
        return problem_answer(403, f"This token may not read metrics. {_HOW}")
    return cast("HttpResponse", ExportToDjangoView(request))


def _may_read(text: str) -> bool:
    wanted = settings.METRICS_TOKEN
    if wanted and hmac.compare_digest(text.encode(), wanted.encode()):
        return True
    token = find_token(text, timezone.now())
    return token is not None and token.user.is_staff
