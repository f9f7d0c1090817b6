"""domain: by what usage is grouped and filtered, declared once for page, API and SQL.

A partition has no annotation: its component is `partition`, as in the files of month reports, its
component name the job's, its instance type `ipu-<size>`, as on the job's pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
    Dimension("component", "Component", "component", "'partition'"),
    Dimension("component_name", "Component name", "component_name", "job_name", rolled=False),
    Dimension("instance_type", "Instance type", "instance_type", "'ipu-' || size"),
    Dimension("job", "Job", "job_uid", "job_uid", rolled=False),
)
DIMENSIONS: Final = {dimension.name: dimension for dimension in _ALL}


class UnknownDimensionError(ValueError):
    """Usage cannot be grouped so; the message names what there is."""


def dimension(name: str) -> Dimension:
    """Return the dimension called `name`. Raises UnknownDimensionError."""
    found = DIMENSIONS.get(name)
    if found is None:
        raise UnknownDimensionError(
            f"by: {name!r} is nothing usage is grouped by. Known: {', '.join(DIMENSIONS)}."
        )
    return found
