"""domain: server-side apply: which manager owns which field (`managedFields`), and conflicts.

Ownership begins with an object's first apply, as in the first releases that had it: earlier fields
belong to `before-first-apply`. Later writes of any kind are recorded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.schema import copy_json
from devcluster.status import StatusError
from devcluster.storage.fields import Fields, from_tree, path_text, to_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devcluster.schemas.schema import Schema
    from devcluster.storage.fields import Path

Body = dict[str, Any]
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"
_NOBODYS: Final = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            *("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation"),
            *("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Manager:
    """The writer of fields: the name in `managedFields`, how, and through which subresource."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        if self.operation == "Apply":
            return json.dumps(self.name)
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.name}"{part} using {self.api_version}'


@dataclass(slots=True)
class Owners:
    """The managers of one object, with their fields and the times of their last changes."""

    fields: dict[Manager, set[Path]] = field(default_factory=dict)
    times: dict[Manager, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Owners:
        """Read an object's `managedFields`."""
        owners = cls()
        for entry in body["metadata"].get("managedFields") or []:
            manager = Manager(
                entry["manager"],
                entry["operation"],
                entry["apiVersion"],
                entry.get("subresource", ""),
            )
            owners.fields[manager] = from_tree(entry["fieldsV1"])
            owners.times[manager] = entry["time"]
        return owners

    def entries(self) -> list[Body]:
        """Return `managedFields`."""
        ordered = sorted(self.fields, key=lambda m: (m.operation, self.times[m], m.name))
        return [self._entry(manager) for manager in ordered if self.fields[manager]]

    def give(self, manager: Manager, fields: set[Path], now: str) -> None:
        """Let a manager own just these fields."""
        if self.fields.get(manager) != fields:
            self.fields[manager], self.times[manager] = fields, now

    def take(self, manager: Manager, fields: set[Path]) -> None:
        """Take fields from everybody but `manager`."""
        for other in self.fields:
            if other != manager:
                self.fields[other] = self.fields[other] - fields

    def everything(self) -> set[Path]:
        """Return each field that has an owner, and what contains it."""
        owned = {path for own in self.fields.values() for path in own}
        return {path[:depth] for path in owned for depth in range(1, len(path) + 1)}

    def _entry(self, manager: Manager) -> Body:
        part = {"subresource": manager.subresource} if manager.subresource else {}
        return {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": self.times[manager],
            "fieldsType": "FieldsV1",
            "fieldsV1": to_tree(self.fields[manager]),
            **part,
        }


def apply_new(config: Body, schema: Schema, manager: Manager, now: str) -> list[Body]:
    """Return the `managedFields` of an object that an apply creates."""
    owners = Owners()
    owners.give(manager, _fields(Fields(schema), config, manager.subresource), now)
    return owners.entries()


@dataclass(frozen=True, slots=True)
class Apply:
    """An apply request to an object that exists."""

    config: Body
    manager: Manager
    force: bool = False

    def to(self, live: Body, schema: Schema, now: str) -> tuple[Body, list[Body]]:
        """Return the object after it and its `managedFields`. StatusError 409 for conflicts.

        Fields that this manager applied before and leaves out now go, unless others own them.
        """
        fields, owners = Fields(schema), _owners(live, schema, self.manager)
        wanted = _fields(fields, self.config, self.manager.subresource)
        merged = fields.merge(live, self._relevant())
        changed, _ = _changes(fields, live, merged)
        self._check_conflicts(owners, changed & wanted)
        owners.take(self.manager, changed & wanted)
        left_out = owners.fields.get(self.manager, set()) - wanted
        owners.give(self.manager, wanted, now)
        gone = sorted(left_out - owners.everything())
        return copy_json(fields.without(merged, gone)), owners.entries()

    def _relevant(self) -> Body:
        """The parts of the configuration that this subresource writes."""
        status = self.manager.subresource == "status"
        parts = ("apiVersion", "kind", "metadata")
        return {k: v for k, v in self.config.items() if k in parts or (k == "status") is status}

    def _check_conflicts(self, owners: Owners, changed: set[Path]) -> None:
        found = [
            (str(other), path)
            for other, own in owners.fields.items()
            for path in sorted(own & changed)
            if other != self.manager
        ]
        if found and not self.force:
            raise _conflict(found)


def track(old: Body, new: Body, schema: Schema, manager: Manager, now: str) -> list[Body]:
    """Return `managedFields` after a write that is no apply; empty if none were kept before."""
    if not old["metadata"].get("managedFields"):
        return []
    fields, owners = Fields(schema), Owners.of(old)
    changed, removed = _changes(fields, old, new)
    owners.take(manager, changed | removed)
    own = (owners.fields.get(manager, set()) | changed) - removed
    if changed or removed:
        owners.give(manager, own, now)
    return owners.entries()


def _owners(live: Body, schema: Schema, manager: Manager) -> Owners:
    """The current owners. Only kubectl itself may take over what its plain `apply` wrote."""
    owners = Owners.of(live)
    if not owners.fields:
        fields, metadata = Fields(schema), live["metadata"]
        first = Manager("before-first-apply", "Update", live["apiVersion"])
        own = _own(fields.flat(live))
        if manager.name == _KUBECTL:
            applied = json.loads((metadata.get("annotations") or {}).get(_LAST_APPLIED) or "{}")
            own -= set(fields.flat(applied))
        owners.give(first, own, metadata["creationTimestamp"])
    return owners


def _fields(fields: Fields, config: Body, subresource: str) -> set[Path]:
    found = _own(fields.flat(config))
    return {path for path in found if (path[0] == "f:status") is (subresource == "status")}


def _own(flat: Mapping[Path, Any]) -> set[Path]:
    owned = set(flat) - _NOBODYS
    return {path for path in owned if path[:2] != ("f:metadata", "f:managedFields")}


def _changes(fields: Fields, old: Body, new: Body) -> tuple[set[Path], set[Path]]:
    """Return the fields that a write adds or changes, and those that it removes."""
    before, after = fields.flat(old), fields.flat(new)
    changed = {p: v for p, v in after.items() if p not in before or before[p] != v}
    return _own(changed), _own({p: v for p, v in before.items() if p not in after})


def _conflict(found: list[tuple[str, Path]]) -> StatusError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {manager}",
            "field": path_text(path),
        }
        for manager, path in found
    ]
    if len(found) == 1:
        ((manager, path),) = found
        problem = f"1 conflict: conflict with {manager}: {path_text(path)}"
    else:
        lines: list[str] = []
        for each in sorted({manager for manager, _ in found}):
            lines.append(f"conflicts with {each}:")
            lines += [f"- {path_text(path)}" for manager, path in found if manager == each]
        problem = f"{len(found)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", f"Apply failed with {problem}", {"causes": causes})
