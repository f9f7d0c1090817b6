"""domain: refusals of the server itself, which no view answers: a problem document for paths of the
API, a line of text for others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipuhub.api.kinds import CONTENT_TYPE, KINDS, RETRY_SECONDS, is_api, problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT: Final = "text/plain; charset=utf-8"
_UNAVAILABLE: Final = 503


class Refusal(Exception):  # noqa: N818  # an answer, not an error
    """The server refuses a request, for a reason of this `kind`, in a sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a refused request."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


def refuse(path: str, kind: str, sentence: str) -> Refused:
    """Return the refusal of a request to `path`, of a kind of `ipuhub.api.kinds`."""
    status, called = KINDS[kind].status, is_api(path)
    text = json.dumps(problem(status, sentence, kind)) if called else f"{sentence}\n"
    headers = {
        "Content-Type": CONTENT_TYPE if called else _TEXT,
        "Cache-Control": "no-store",
        **({"Retry-After": str(RETRY_SECONDS)} if status == _UNAVAILABLE else {}),
    }
    return Refused(status, text, headers)
