"""glue: actions on jobs in the API: one POST each, with dry run and Idempotency-Key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.response import Response

from dashboard.actions.audit import Actor, carry_out, require_kubernetes_user
from dashboard.actions.changes import (
    MOST_INSTANCES,
    RUN_AGAIN,
    SCALE,
    BadChangeError,
    change_of,
    create,
)
from dashboard.actions.manifests import MOST_BYTES
from dashboard.actions.writer import WriteProblem, send
from dashboard.job.list import PricedJobs
from ipuhub.api.files import read_yes
from ipuhub.api.idempotency import DRY_RUN, OutcomeUnknown, idempotent
from ipuhub.api.kinds import CONTENT_TYPE, KINDS
from ipuhub.api.parsing import JsonBody, read_body
from ipuhub.api.schema import NoBodySerializer, ProblemSerializer, body_example
from ipuhub.api.views import PlainView
from ipuhub.web.access import is_admin, require_operator, scope_of
from ipuhub.web.audit import JOB, AuditEvent, author_of
from ipuhub.web.refusals import note_event, note_refusal
from jobs.ipujob.names import LONGEST_JOB_NAME
from jobs.selectors import find_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from rest_framework.request import Request

    from dashboard.actions.changes import Change

_F = TypeVar("_F", bound="Callable[..., Response]")
_once: Final = idempotent(sends=True, has_dry_run=True)
_DRY_RUN: Final = OpenApiParameter(
    DRY_RUN,
    bool,
    default=False,
    description="Have the API server judge the change (RBAC, admission webhooks), and change "
    "nothing.",
)
_MANIFEST: Final = {
    "apiVersion": "graphcore.ai/v1alpha1",
    "kind": "IPUJob",
    "metadata": {"name": "train", "namespace": "team-a"},
    "spec": {
        "jobInstances": 1,
        "ipusPerJobInstance": 4,
        "workersPerJobInstance": 1,
        "workers": {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "train", "image": "train:1", "command": ["python3", "train.py"]}
                    ]
                }
            }
        },
    },
}


class OutcomeSerializer(serializers.Serializer[Any]):
    """The change that the API server accepted."""

    action = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    uid = serializers.CharField(help_text="Of the job; empty for a dry run of a new job.")
    dry_run = serializers.BooleanField()
    audit = serializers.IntegerField(allow_null=True, help_text="Number in the audit.")
    warnings = serializers.ListField(
        child=serializers.CharField(),
        help_text="Of the API server and its admission webhooks.",
    )


@body_example({"instances": 2})
class ScaleSerializer(serializers.Serializer[Any]):
    """The wanted number of instances."""

    instances = serializers.IntegerField(min_value=1, max_value=MOST_INSTANCES)


@body_example({"name": "train-again"})
class RunAgainSerializer(serializers.Serializer[Any]):
    """The name of the new job; left out, the next free number is tried once: `train-run2`."""

    name = serializers.CharField(max_length=LONGEST_JOB_NAME, required=False)


@body_example(_MANIFEST)
class ManifestSerializer(serializers.Serializer[Any]):
    """An IPUJob, as `kubectl create -f` takes it."""

    is_open = True  # Kubernetes judges its fields
    apiVersion = serializers.CharField()  # noqa: N815  # as Kubernetes writes it
    kind = serializers.CharField()
    metadata = serializers.DictField()
    spec = serializers.DictField()


class ActionProblem(APIException):
    """A change that was not made; the kind says why."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.default_code = kind
        self.status_code = KINDS[kind].status


class UnknownAction(ActionProblem, OutcomeUnknown):
    """A change that may have been made."""


def _described(summary: str, name: str, body: Any, status: int = 200) -> Callable[[_F], _F]:
    refusals = {409: "conflict", 422: "refused by Kubernetes, or the key belongs to another body"}
    problems = {
        (code, CONTENT_TYPE): OpenApiResponse(ProblemSerializer, text.capitalize() + ".")
        for code, text in refusals.items()
    }
    return extend_schema(
        operation_id=name,
        summary=summary,
        tags=["jobs"],
        parameters=[_DRY_RUN],
        request=body,
        responses={status: OutcomeSerializer, **problems},
    )


class JobAction(PlainView):
    """Base of the actions on one job."""

    key: ClassVar[str]
    body: ClassVar[type[serializers.Serializer[Any]]] = NoBodySerializer

    def act(self, request: Request, uid: str) -> Response:
        """Do it. Raises Http404, PermissionDenied, ValidationError and ActionProblem."""
        job = find_job(scope_of(request.user), uid)
        plain = request._request  # noqa: SLF001  # DRF hides Django's
        if not read_yes(request, DRY_RUN):
            note_event(plain, AuditEvent(JOB, self.key, job.name, job.namespace, job.uid))
        actor = _actor_of(request, job.namespace)
        given = read_body(self.body, request)
        try:
            change = change_of(job, self.key, given)
        except BadChangeError as error:
            if error.field == "action":
                note_refusal(plain, str(error))
                raise ActionProblem("conflict", str(error)) from error
            raise ValidationError({error.field: [str(error)]}) from error
        return answer(request, actor, change, 201 if change.is_new else 200)


class SuspendJob(JobAction):
    """Suspend a job: its pods end, and its IPUs are free."""

    key = "suspend"

    @_described("Suspend a job", "jobs_suspend", None)
    @_once
    def post(self, request: Request, uid: str) -> Response:
        """Set `spec.suspend`, as the user's Kubernetes user."""
        return self.act(request, uid)


class ResumeJob(JobAction):
    """Resume a suspended job."""

    key = "resume"

    @_described("Resume a job", "jobs_resume", None)
    @_once
    def post(self, request: Request, uid: str) -> Response:
        """Unset `spec.suspend`, as the user's Kubernetes user."""
        return self.act(request, uid)


class CancelJob(JobAction):
    """Cancel a job: delete it from the cluster. Its record stays."""

    key = "cancel"

    @_described("Cancel a job", "jobs_cancel", None)
    @_once
    def post(self, request: Request, uid: str) -> Response:
        """Delete the IPUJob, as the user's Kubernetes user."""
        return self.act(request, uid)


class ScaleJob(JobAction):
    """Change how many instances a job without a launcher has."""

    key = SCALE
    body = ScaleSerializer

    @_described("Scale a job", "jobs_scale", ScaleSerializer)
    @_once
    def post(self, request: Request, uid: str) -> Response:
        """Set `spec.jobInstances`, as the user's Kubernetes user."""
        return self.act(request, uid)


class RunJobAgain(JobAction):
    """Create a new job with the labels and the spec of this job, which may be deleted."""

    key = RUN_AGAIN
    body = RunAgainSerializer

    @_described("Run a job again", "jobs_run_again", RunAgainSerializer, 201)
    @_once
    def post(self, request: Request, uid: str) -> Response:
        """Create the new IPUJob, as the user's Kubernetes user."""
        return self.act(request, uid)


class ManifestBody(JsonBody):
    """Parser for a manifest, as large as the page takes it."""

    most_bytes = MOST_BYTES


class JobsView(PricedJobs):
    """All jobs that the caller may see, and new jobs."""

    parser_classes = (ManifestBody,)

    @_described("Create a job", "jobs_create", ManifestSerializer, 201)
    @_once
    def post(self, request: Request) -> Response:
        """Create an IPUJob from its manifest, as the user's Kubernetes user; without a namespace in
        `default`. Raises PermissionDenied, ValidationError and ActionProblem."""
        actor = _actor_of(request)
        given = dict(request.data)
        metadata = given.get("metadata")
        if isinstance(metadata, dict):
            given["metadata"] = {"namespace": "default", **metadata}
        try:
            change = create(given)
        except BadChangeError as error:
            raise ValidationError({error.field: [str(error)]}) from error
        require_operator(request.user, change.namespace)
        return answer(request, actor, change, 201)


def answer(request: Request, actor: Actor, change: Change, status: int) -> Response:
    """Send the change as the caller's Kubernetes user; return the accepted change.

    Raises ValidationError and ActionProblem.
    """
    body = {"action": change.action.key, "namespace": change.namespace, "name": change.name}
    try:
        if read_yes(request, DRY_RUN):
            sent = send(change, actor.acts_as, dry_run=True)
            known = {"uid": change.uid, "dry_run": True, "audit": None}
            return Response(body | known | {"warnings": sent.warnings})
        done = carry_out(change, actor)
    except WriteProblem as problem:
        sentence = problem.sentence(in_full=is_admin(request.user))
        kind = UnknownAction if problem.may_have_happened else ActionProblem
        raise kind(problem.kind, sentence) from problem
    known = {"uid": done.entry.uid, "dry_run": False, "audit": done.entry.pk}
    return Response(body | known | {"warnings": done.warnings}, status=status)


def _actor_of(request: Request, namespace: str = "") -> Actor:
    found = require_kubernetes_user(request.user, namespace)
    return Actor(author_of(request), found)
