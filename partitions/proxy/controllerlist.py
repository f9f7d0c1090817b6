"""glue: the sources of the list of V-IPU controllers: a setting, a file, or the ConfigMap of that
file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient

log = structlog.get_logger(__name__)
READ_SECONDS: Final = 10.0


class ControllerList:
    """The text of the list: `text`, or the content of the file at `path`, whichever is given.

    With `configmap`, a name in `namespace`, its key with the file's name replaces the file as soon
    as it is read: a kubelet writes an edit of a ConfigMap into mounted files after up to 90 s.
    While the API server does not answer, and once the key is gone, the last text stays in use.
    """

    def __init__(
        self, client: KubeClient, namespace: str, *, text: str = "", path: str = "", configmap: str
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._text = text
        self._path = Path(path) if path else None
        self._configmap = configmap if path else ""
        self._stored: str | None = None
        self._problem = ""

    @property
    def is_followed(self) -> bool:
        """Return whether the list is in a ConfigMap. A loop that ends would end the whole proxy."""
        return bool(self._configmap)

    def read(self) -> str:
        """Return the text; raises OSError or UnicodeDecodeError."""
        if self._stored is not None:
            return self._stored
        return self._path.read_text("utf-8") if self._path else self._text

    async def run(self, every_seconds: float = READ_SECONDS) -> None:
        """Read the ConfigMap now and then, until cancelled; only if the list `is_followed`."""
        key = self._path.name if self._path else ""
        while True:
            try:
                found = await self._client.get(CONFIG_MAPS, self._configmap, self._namespace)
                self._stored = (found.get("data") or {}).get(key, self._stored)
                self._note("")
            except ApiError as error:
                self._note(str(error))
            await asyncio.sleep(every_seconds)

    def _note(self, problem: str) -> None:
        """Log once that edits have to wait for the kubelet."""
        if problem and not self._problem:
            log.warning("ConfigMap not read", name=self._configmap, problem=problem)
        self._problem = problem
