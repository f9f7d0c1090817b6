"""domain: the user and group of a pod, from its usage annotation, and its recorded labels.

The annotation is a claim. Only `usage.pods.stamps` confirms that the operator wrote it, by the
record of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ipuhub.quantities import LARGEST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from usage.pods.resources import PodMeta

ANNOTATIONS: Final = ("ipuhub.io/usage", "primehub.io/usage")
JOB_UID_LABEL: Final = "graphcore.ai/ipujob-uid"
OPERATOR, ANNOTATION, NAMESPACE = "operator", "annotation", "namespace"
OPERATORS_COMPONENT: Final = "ipujob"
RESERVED: Final = frozenset({OPERATORS_COMPONENT, "partition"})
"""Components of the product's own: of pods that the operator stamped, and of partitions."""
_LONGEST: Final = 253  # the longest name of an object


class InvalidAnnotation(ValueError):  # noqa: N818  # it is the annotation that is invalid
    """The annotation is invalid; the message says why."""


class _Stamp(msgspec.Struct, frozen=True, gc=False):
    component: str
    component_name: str
    group: str
    instance_type: str
    user: str | None = None
    partition: str | None = None
    ipus: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The holder of a pod, and the source of that knowledge. `micro_ipus` is None without the
    operator's stamp.

    `operator` means that the pod carries such a stamp: its job's record says whether the stamp is
    genuine. `claimed_component`: a component of the product's own that the pod's author wrote;
    the pod then has none.
    """

    claim: str
    group: str
    user: str = ""
    component: str = ""
    component_name: str = ""
    instance_type: str = ""
    job_uid: str = ""
    role: str = ""
    instance: int | None = None
    attempt: int | None = None
    partition: str = ""
    micro_ipus: int | None = None
    claimed_component: str = ""


_STAMP: Final = msgspec.json.Decoder(_Stamp)


def annotation_of(meta: PodMeta) -> str | None:
    """Return the text of the pod's usage annotation; ours takes precedence over PrimeHub's."""
    annotations = meta.annotations
    if annotations:
        for key in ANNOTATIONS:
            if key in annotations:
                return annotations[key]
    return None


def claim_of(meta: PodMeta, text: str | None) -> Claim:
    """Return who a pod with the annotation `text` counts for. Raises InvalidAnnotation."""
    if text is None:
        return by_namespace(meta)
    stamp = _decode(text)
    job_uid = controlling_job(meta)
    is_own = bool(job_uid) and stamp.component == OPERATORS_COMPONENT
    claimed = "" if is_own or not is_reserved(stamp.component) else stamp.component
    component = "" if claimed else stamp.component
    common = (stamp.group, stamp.user or "", component, stamp.component_name)
    if not job_uid:
        return Claim(ANNOTATION, *common, stamp.instance_type, claimed_component=claimed)
    labels = meta.labels or {}
    return Claim(
        OPERATOR,
        *common,
        stamp.instance_type,
        job_uid,
        labels.get("graphcore.ai/role", ""),
        _number(labels.get("graphcore.ai/instance")),
        _number(labels.get("graphcore.ai/attempt")),
        stamp.partition or "",
        stamp.ipus,
        claimed,
    )


def is_reserved(component: str) -> bool:
    """Return whether `component` is, or looks like, a component that only IPUHub may set."""
    return component.strip().casefold() in RESERVED


def by_namespace(meta: PodMeta) -> Claim:
    """Return the claim of a pod without a usable annotation: it counts for its namespace."""
    return Claim(NAMESPACE, meta.namespace)


def controlling_job(meta: PodMeta) -> str:
    """Return the UID of the IPUJob that labels and controls the pod; empty if there is none.

    Only then can the annotation be the operator's stamp.
    """
    uid = (meta.labels or {}).get(JOB_UID_LABEL)
    if not uid:
        return ""
    for owner in meta.owner_references or ():
        if owner.controller and owner.uid == uid and owner.kind == "IPUJob":
            return uid if owner.api_version.startswith("graphcore.ai/") else ""
    return ""


def _decode(text: str) -> _Stamp:
    try:
        stamp = _STAMP.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidAnnotation(f"the usage annotation cannot be read: {error}") from error
    for name in ("component", "component_name", "group", "instance_type", "user", "partition"):
        value = getattr(stamp, name) or ""
        if len(value) > _LONGEST:
            raise InvalidAnnotation(f"{name} is longer than {_LONGEST} characters")
        if "\0" in value:
            raise InvalidAnnotation(f"{name} contains a NUL character")
    if stamp.ipus is not None and not 0 <= stamp.ipus <= LARGEST:
        raise InvalidAnnotation(f"ipus must be a number from 0 to {LARGEST}")
    return stamp


def _number(text: str | None) -> int | None:
    """A small whole number of a label."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None


PREFIX: Final = "label:"
"""Prefix of a label's key where usage is grouped or filtered by it."""


def kept_labels(labels: Mapping[str, str] | None, keys: Collection[str]) -> dict[str, str]:
    """Return the pod's labels that are recorded."""
    if not keys or not labels:
        return {}
    return {key: labels[key].replace("\0", "\ufffd") for key in keys if key in labels}
