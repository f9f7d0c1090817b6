"""glue: a progress bar for commands: one line of a terminal, drawn over; elsewhere nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from django.core.management.base import OutputWrapper

_CELLS = 30


class ProgressBar:
    """Shows how much of something is done, as a context; at its end the line is left clean."""

    def __init__(self, out: OutputWrapper, noun: str) -> None:
        self._out, self._noun = out, noun
        self._is_shown = out.isatty()

    def __enter__(self) -> Self:
        """Draw nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Clear the line."""
        if self._is_shown:
            self._write("\r\033[K")

    def show(self, done: int, whole: int) -> None:
        """Draw `done` of `whole`."""
        if not self._is_shown:
            return
        filled = _CELLS * done // whole if whole else _CELLS
        bar = "#" * filled + "." * (_CELLS - filled)
        self._write(f"\r[{bar}] {done:,} of {whole:,} {self._noun}\033[K")

    def _write(self, text: str) -> None:
        self._out.write(text, ending="")
        self._out.flush()
