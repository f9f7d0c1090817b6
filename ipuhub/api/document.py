"""glue: the OpenAPI document of the API, generated from its views."""

from __future__ import annotations

from typing import cast

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer


def openapi_text() -> str:
    """Return docs/reference/openapi.yaml."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return cast("bytes", OpenApiYamlRenderer().render(schema, renderer_context={})).decode()  # type: ignore[no-untyped-call]
