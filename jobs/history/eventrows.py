"""domain: the row of a Kubernetes Event of a job or its pod."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jobs.history.rows import LARGEST
from jobs.history.specs import storable_json
from jobs.ipujob.fields import whole_number
from jobs.ipujob.names import KIND, metadata, namespace_of, parse_time, uid_of

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.ipujob.names import Manifest

KINDS: Final = (KIND, "Pod")
"""The kinds of objects whose Events are kept."""
_LONGEST: Final = 1024  # characters of a message, as events.k8s.io/v1 has it
_OF_POD: Final = re.compile(r"(?P<job>.+)-(launcher|worker-\d+)")
_READ: Final = (
    "type",
    "reason",
    "message",
    "count",
    "series",
    "firstTimestamp",
    "eventTime",
    "lastTimestamp",
)
_READ_OF_METADATA: Final = ("uid", "namespace", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class EventRow:
    """An Event. `job_uid` is set if it is about a job; else `job` is the job of the pod `pod`."""

    uid: str
    namespace: str
    job: str
    job_uid: str
    pod: str
    type: str
    reason: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime

    def is_newer_than(self, other: EventRow) -> bool:
        """Return whether this is a later state of the same Event."""
        return (self.count, self.last_at) > (other.count, other.last_at)


def event_row_of(manifest: Manifest, now: datetime) -> EventRow | None:
    """Return the row of an Event received at `now`; None if it is about no job and no job's pod.

    Most Events of a cluster are about other pods, so the name decides before anything else is read.
    """
    about = manifest.get("involvedObject")
    about = about if isinstance(about, dict) else {}
    name = str(about.get("name") or "")
    of_pod = _OF_POD.fullmatch(name) if about.get("kind") == "Pod" else None
    if of_pod is None and about.get("kind") != KIND:
        return None
    meta = metadata(manifest)
    clean: Manifest = storable_json(
        {key: manifest.get(key) for key in _READ}
        | {"metadata": {key: meta.get(key) or "" for key in _READ_OF_METADATA}}
        | {"about": [name, str(about.get("uid") or "")]}
    )
    name, uid = clean["about"]
    series = clean["series"] if isinstance(clean["series"], dict) else {}
    times = (clean["firstTimestamp"], clean["eventTime"], metadata(clean)["creationTimestamp"])
    first = _first_time(*times) or now
    last = _first_time(series.get("lastObservedTime"), clean["lastTimestamp"]) or first
    count = whole_number(clean["count"]) or whole_number(series.get("count")) or 1
    return EventRow(
        uid=uid_of(clean),
        namespace=namespace_of(clean),
        job=of_pod["job"] if of_pod else name,
        job_uid="" if of_pod else uid,
        pod=name if of_pod else "",
        type="Warning" if clean["type"] == "Warning" else "Normal",
        reason=str(clean["reason"] or "")[:_LONGEST],
        message=str(clean["message"] or "")[:_LONGEST],
        count=max(1, min(count, LARGEST)),
        first_at=first,
        last_at=max(first, last),
    )


def _first_time(*texts: object) -> datetime | None:
    found = (parse_time(text) for text in texts if isinstance(text, str))
    return next((each for each in found if each is not None), None)
