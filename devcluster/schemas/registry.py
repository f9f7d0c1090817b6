"""io: the currently served resources: built-in kinds and kinds of stored CRDs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devcluster.schemas.crds import CRDS, serve
from devcluster.schemas.kinds import BY_KIND, BY_RESOURCE, KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devcluster.schemas.crds import CustomKind
    from devcluster.schemas.kinds import Kind
    from devcluster.storage.store import Change, Store


class Registry:
    """Looks up kinds by path or by apiVersion and kind; follows the CRDs in the store."""

    def __init__(self, store: Store) -> None:
        self.custom: dict[tuple[str, str, str], CustomKind] = {}
        self._by_kind: dict[tuple[str, str], Kind] = {}
        self._store = store
        self._read()
        store.listeners.append(self._on_change)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind behind a path, or None."""
        path = (group, version, plural)
        custom = self.custom.get(path)
        return BY_RESOURCE.get(path) or (custom.kind if custom else None)

    def find_kind(self, api_version: str, kind: str) -> Kind | None:
        """The kind of a manifest, or None."""
        return BY_KIND.get((api_version, kind)) or self._by_kind.get((api_version, kind))

    def custom_kind(self, kind: Kind) -> CustomKind | None:
        """Return the CRD's description of `kind`; None for a built-in kind."""
        return self.custom.get((kind.group, kind.version, kind.plural))

    def kinds(self) -> list[Kind]:
        """Everything that is served."""
        return [*KINDS, *(custom.kind for custom in self.custom.values())]

    def open_api(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        """The schemas of the CRDs' kinds, by apiVersion and kind."""
        return {(c.kind.api_version, c.kind.kind): c.open_api for c in self.custom.values()}

    def _on_change(self, change: Change) -> None:
        if change.bucket == CRDS:
            self._read()

    def _read(self) -> None:
        kinds = [custom for item in self._store.items(CRDS) for custom in serve(item.body)]
        self.custom = {(c.kind.group, c.kind.version, c.kind.plural): c for c in kinds}
        self._by_kind = {(c.kind.api_version, c.kind.kind): c.kind for c in kinds}
