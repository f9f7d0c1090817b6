"""domain: by what usage is grouped and filtered, declared once for page, API and SQL.

A partition has no annotation: its component is `partition`, as in the files of month reports, its
component name the job's, its instance type `ipu-<size>`, as on the job's pods. It lies on no node
and has no labels: there its value is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipuhub.labelkeys import is_label_key

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LABEL: Final = "label:"
"""What stands before the key of a pod label: `label:app.kubernetes.io/part-of`."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A name in URLs, a label, and where its value stands; `rolled`: the day sums have it."""

    name: str
    label: str
    pods: str
    partitions: str
    rolled: bool = True


_ALL: Final = (
    Dimension("namespace", "Namespace", "namespace", "namespace"),
    Dimension("group", "Group", '"group"', '"group"'),
    Dimension("user", "User", '"user"', '"user"'),
    Dimension("component", "Component", "component", "'partition'::text"),
    Dimension("component_name", "Component name", "component_name", "job_name", rolled=False),
    Dimension("instance_type", "Instance type", "instance_type", "'ipu-' || size"),
    Dimension("job", "Job", "job_uid", "job_uid", rolled=False),
    Dimension("node", "Node", "node", "''::text", rolled=False),
)
DIMENSIONS: Final = {dimension.name: dimension for dimension in _ALL}


class UnknownDimensionError(ValueError):
    """Usage cannot be grouped so; the message names what there is."""


def dimension(name: str, labels: Collection[str] = ()) -> Dimension:
    """Return the dimension called `name`; `labels`: keys of the pod labels that are recorded.

    Raises UnknownDimensionError.
    """
    found = DIMENSIONS.get(name)
    if found is not None:
        return found
    key = name.removeprefix(LABEL)
    if key != name and key in labels and is_label_key(key):  # a checked key is safe in SQL
        return Dimension(name, f"Label {key}", _label_sql(key), "''::text", rolled=False)
    known = ", ".join([*DIMENSIONS, *(f"{LABEL}{each}" for each in labels)])
    also = "" if key == name else " Labels are recorded where USAGE_LABELS names them."
    raise UnknownDimensionError(
        f"by: {name[:80]!r} is nothing usage is grouped by. Known: {known}.{also}"
    )


def dimensions(names: Sequence[str], labels: Collection[str] = ()) -> tuple[Dimension, ...]:
    """Return several, each at most once. Raises UnknownDimensionError."""
    if len(set(names)) < len(names):
        raise UnknownDimensionError("by: each dimension at most once.")
    return tuple(dimension(name, labels) for name in names)


def _label_sql(key: str) -> str:
    return f"COALESCE(labels ->> '{key}', '')"
