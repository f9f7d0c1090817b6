"""glue: PrimeHub Usage's own paths, for PrimeHub's console, which sends no token.

The answers are PrimeHub Usage's, except: a month with usage but without a report is a 404 with a
message (PrimeHub Usage sends an empty body or a 500); CSV has the type text/csv and is a download;
each line ends with a newline; an apostrophe guards text that a spreadsheet would execute. A month
without usage is an empty 404 here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from prometheus_client import Counter
from rest_framework.views import APIView

from ipuhub.process.metrics import Kind, Metric
from ipuhub.web.middleware import database_answer
from ipuhub.web.requests import client_address, is_within
from usage.api.reports import PrimeHubFile, PrimeHubMonths

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from rest_framework.request import Request

OPEN_READS = Metric(
    "ipuhub_open_report_reads_total",
    Kind.COUNTER,
    "Reads below /report/monthly without a token, from USAGE_OPEN_PRIMEHUB_PATHS.",
    "Do clients still read reports without a token?",
    ("path",),
)
WEB = (OPEN_READS,)
log = structlog.get_logger(__name__)
_reads = Counter(OPEN_READS.name, OPEN_READS.help, OPEN_READS.labels)


class OpenToNetworks(APIView):
    """Lets clients in the networks of USAGE_OPEN_PRIMEHUB_PATHS read without a token.

    Other clients need the view's permissions. A token is always checked: a wrong token is refused,
    also from those networks.
    """

    open_name = ""

    def check_permissions(self, request: Request) -> None:
        """Raise NotAuthenticated or PermissionDenied if the caller may not read."""
        if not request.user.is_authenticated and self._is_open_to(request):
            return
        super().check_permissions(request)

    def _is_open_to(self, request: Request) -> bool:
        networks = settings.USAGE_OPEN_PRIMEHUB_PATHS
        if not networks or request.method not in {"GET", "HEAD"}:
            return False
        address = client_address(request._request, settings.TRUSTED_PROXIES)  # noqa: SLF001  # Django's
        if address is None or not is_within(address, networks):
            return False
        _reads.labels(self.open_name).inc()
        log.info("report read without a token", address=str(address), path=request.path)
        return True


@extend_schema(exclude=True)
class OpenMonths(OpenToNetworks, PrimeHubMonths):
    """`/report/monthly`."""

    open_name = "months"


@extend_schema(exclude=True)
class OpenSummary(OpenToNetworks, PrimeHubFile):
    """`/report/monthly/<year>/<month>`."""

    open_name = "summary"


@extend_schema(exclude=True)
class OpenDetails(OpenToNetworks, PrimeHubFile):
    """`/report/monthly/details/<year>/<month>`."""

    open_name = "details"
    kind = "details"


@require_safe
def health(_request: HttpRequest) -> HttpResponse:
    """Answer HEALTH while reports can be read, 500 while the database does not answer."""
    return database_answer("HEALTH", 500)
