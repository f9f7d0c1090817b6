"""glue: bodies of the API: JSON of a sensible size, else a refusal in words."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES: Final = 64 * 1024  # the largest body there is has a few hundred


class TooLarge(APIException):
    """The body is longer than any that is of use."""

    status_code = 413
    default_detail = f"The body is too large: at most {MOST_BYTES // 1024} KiB."


class JsonBody(BaseParser):
    """Reads a JSON object (RFC 8259), no more than MOST_BYTES of it."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the object that the body is. Raises ParseError and TooLarge."""
        del media_type, parser_context
        body = stream.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise TooLarge
        try:
            found = json.loads(body.decode(), parse_constant=_refuse_constant)
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except UnicodeError:
            raise ParseError("The body is not UTF-8 text.") from None
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}.") from None
        if not isinstance(found, dict):
            raise ParseError('The body is not a JSON object, like {"name": "value"}.')
        return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
