"""glue: the OpenAPI document as the API serves it, and as the reference page reads it.

The file in docs/reference is made by `ipuhub.api.schema`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from django.http import HttpResponse
from django.urls import get_resolver
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularJSONAPIView

from ipuhub.api.views import PlainView

if TYPE_CHECKING:
    from django.urls import URLResolver
    from rest_framework.request import Request


def make_document() -> dict[str, Any]:
    """Return the document of the URL table in use."""
    made = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return cast("dict[str, Any]", made)


@lru_cache(maxsize=1)
def _as_json(_table: URLResolver) -> bytes:
    """Return the document of a URL table: to make it takes half a second of CPU."""
    renderer = OpenApiJsonRenderer()
    return cast("bytes", renderer.render(make_document(), renderer_context={}))


class Document(PlainView, SpectacularJSONAPIView):
    """The OpenAPI document of this release, as JSON."""

    def _get_schema_response(self, request: Request) -> HttpResponse:
        """Return the document, which is the same for every caller."""
        name = self._get_filename(request, "")  # type: ignore[no-untyped-call]
        return HttpResponse(
            _as_json(get_resolver()),
            content_type=request.accepted_renderer.media_type,
            headers={"Content-Disposition": f'inline; filename="{name}"'},
        )
