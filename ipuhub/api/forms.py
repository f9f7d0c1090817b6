"""glue: in which form an answer of the API goes out: JSON, CSV or JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.web.filters import BadFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rest_framework.request import Request

JSON, CSV, LINES = "json", "csv", "jsonl"
FORMS = (JSON, CSV, LINES)
MEDIA_TYPES = {JSON: "application/json", CSV: "text/csv", LINES: "application/x-ndjson"}
_TYPES = {
    **{kind: form for form, kind in MEDIA_TYPES.items()},
    "application/jsonl": LINES,
}


def form_of(request: Request, forms: Sequence[str] = FORMS) -> str:
    """Return the form in the address, else in `format`, else what `Accept` likes best, else json.

    Raises BadFilter.
    """
    asked = [text for text in request.query_params.getlist("format") if text]
    named = str((request.parser_context or {}).get("kwargs", {}).get("form", ""))
    if named and asked and asked != [named]:
        raise BadFilter([f"format: the address says {named} already. Ask without it."])
    asked = [named] if named else asked
    if len(asked) > 1:
        raise BadFilter(["format: give it once."])
    if asked:
        if asked[0] not in forms:
            raise BadFilter([f"format: {asked[0][:50]!r} is none of {', '.join(forms)}."])
        return asked[0]
    offered = [kind for kind, form in _TYPES.items() if form in forms]
    liked = request._request.get_preferred_type(offered)  # noqa: SLF001  # DRF hides Django's
    return _TYPES[liked] if liked else JSON
