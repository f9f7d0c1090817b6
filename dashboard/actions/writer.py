"""io: sends a change to the API server as the user's Kubernetes user, and explains a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipuhub.kube.errors import (
    AlreadyExists,
    ApiError,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unreachable,
)
from ipuhub.kube.resources import WriteOptions
from ipuhub.web.readings import NO_CONFIG, problem_sentence
from jobs.ipujob.names import IPUJOBS
from partitions.connections import sources

if TYPE_CHECKING:
    from dashboard.actions.changes import Change
    from ipuhub.kube.access import User
    from ipuhub.kube.client import KubeClient
    from jobs.ipujob.names import Manifest

FIELD_MANAGER: Final = "ipuhub-dashboard"
SECONDS: Final = 12.0
"""Limit of a write: the admission webhooks have 10 s."""
_AWAY: Final = "The Kubernetes API is unavailable"
_FAILED: Final = "The Kubernetes API failed: look at the job before you try again"
_MAY_NOT_IMPERSONATE: Final = (
    "The dashboard may not act as you in this cluster: its ServiceAccount needs `impersonate` on "
    "your Kubernetes user and your groups there"
)


class WriteProblem(Exception):  # noqa: N818  # an answer, not an error
    """The reason that a write did not happen, or that it `may_have_happened`.

    `kind` is one of `ipuhub.api.kinds`; `detail` is for administrators.
    """

    def __init__(
        self,
        kind: str,
        problem: str,
        detail: str = "",
        *,
        may_have_happened: bool = False,
        status: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.kind, self.problem, self.detail = kind, problem, detail
        self.may_have_happened, self.status = may_have_happened, status

    def sentence(self, *, in_full: bool) -> str:
        """The sentence, with its detail only `in_full`."""
        return problem_sentence(self.problem.removesuffix("."), self.detail, in_full=in_full)


@dataclass(frozen=True, slots=True)
class Sent:
    """An accepted write: the resulting object, and the API server's warnings."""

    object: Manifest
    warnings: tuple[str, ...] = ()


def send(change: Change, acts_as: User, *, dry_run: bool) -> Sent:
    """Send the change as this user, in these groups; return the result. Raise WriteProblem.

    With `dry_run` the server checks the change (RBAC, admission webhooks, schema) and stores
    nothing.
    """
    try:
        kube = sources().kube
    except ConfigError as error:
        raise WriteProblem("cluster-unavailable", NO_CONFIG, str(error)) from error
    warnings: list[str] = []
    options = WriteOptions(
        dry_run=dry_run,
        manager=FIELD_MANAGER,
        is_strict=True,
        acts_as=acts_as.username,
        groups=acts_as.groups,
        timeout_seconds=SECONDS,
        on_warning=warnings.append,
    )
    try:
        written = kube.run(_write, kube.client, change, options)
    except ApiError as error:
        raise explain(error, change, acts_as.username) from error
    return Sent(written, tuple(warnings))


async def _write(client: KubeClient, change: Change, options: WriteOptions) -> Manifest:
    name, namespace = change.name, change.namespace
    if change.is_new:
        return await client.create(IPUJOBS, change.body, namespace, options=options)
    if change.method == "PATCH":
        return await client.patch(IPUJOBS, name, change.body, namespace, options=options)
    return await client.delete(
        IPUJOBS, name, namespace, uid=change.uid, propagation="Background", options=options
    )


def explain(error: ApiError, change: Change, acts_as: str) -> WriteProblem:
    """Return the sentence that says why the API server did not do it."""
    if isinstance(error, Invalid) and _is_other_uid(error):
        return WriteProblem("conflict", _REPLACED, status=error.status)
    known = [(kind, sentence) for type_, kind, sentence in _WHY if isinstance(error, type_)]
    unclear = _FAILED if error.may_have_happened else _AWAY
    kind, sentence = known[0] if known else ("cluster-unavailable", unclear)
    detail = error.message
    if isinstance(error, Forbidden) and " cannot impersonate " in error.message:
        sentence = _MAY_NOT_IMPERSONATE
    elif isinstance(error, Forbidden | Invalid):
        detail = ""
    return WriteProblem(
        kind,
        sentence.format(
            who=acts_as,
            why=error.message,
            what=f"namespace {change.namespace}" if change.is_new else "job",
        ),
        detail,
        may_have_happened=error.may_have_happened,
        status=error.status or None,
    )


def _is_other_uid(error: Invalid) -> bool:
    """A patch that names another UID than the object's is Invalid, a deletion a Conflict."""
    causes = error.details.get("causes") or ()
    return any(cause.get("field") == "metadata.uid" for cause in causes)


_REPLACED: Final = "The job was replaced by another job of this name"
_WHY: Final[tuple[tuple[type[ApiError], str, str], ...]] = (
    (Forbidden, "cluster-forbids", "Kubernetes does not allow this to {who}: {why}"),
    (AlreadyExists, "conflict", "There is a job of this name already. Choose another name"),
    (Conflict, "conflict", _REPLACED),
    (NotFound, "not-in-cluster", "The {what} is not in the cluster"),
    (Invalid, "cluster-refuses", "Kubernetes refuses this: {why}"),
    (
        Unreachable,
        "cluster-unavailable",
        "The Kubernetes API did not answer: look at the job before you try again",
    ),
)
