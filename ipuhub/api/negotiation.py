"""glue: endpoints that hand out files, whatever the client says it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.negotiation import BaseContentNegotiation

if TYPE_CHECKING:
    from rest_framework.renderers import BaseRenderer
    from rest_framework.request import Request


class AnyAccept(BaseContentNegotiation):
    """Files go out as they are, whatever the client says it accepts; refusals as JSON."""

    def select_parser(self, _request: Request, parsers: Any) -> Any:
        """Return the first."""
        return next(iter(parsers), None)

    def select_renderer(
        self, _request: Request, renderers: Any, _format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the first."""
        return renderers[0], renderers[0].media_type
