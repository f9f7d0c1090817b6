"""Finds the static files once a test process, not once a client."""

from __future__ import annotations

from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]


def find_static_files_once() -> None:
    """Give each middleware the files that the first middleware with its prefix found.

    Each `django.test.Client` has middleware of its own, and WhiteNoise reads about ninety files'
    metadata when it is made: 20 ms of CPU, more than most pages take.
    """
    find = WhiteNoiseMiddleware.add_files_from_finders
    found: dict[str, dict[str, object]] = {}

    def find_once(middleware: WhiteNoiseMiddleware) -> None:
        prefix = middleware.static_prefix
        if prefix not in found:
            find(middleware)
            found[prefix] = dict(middleware.files)
        middleware.files.update(found[prefix])

    WhiteNoiseMiddleware.add_files_from_finders = find_once
