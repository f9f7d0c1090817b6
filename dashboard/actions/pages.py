"""glue: the pages that change jobs: each shows the effect first and applies it once confirmed.

The first page asks the API server with a dry run, as the user, so that it shows what RBAC and the
admission webhooks say before anything happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboard.actions.audit import Actor, carry_out, require_kubernetes_user
from dashboard.actions.changes import (
    ACTIONS,
    CREATE,
    RUN_AGAIN,
    SCALE,
    BadChangeError,
    action_of,
    change_of,
    create,
    next_name,
    offered_actions,
)
from dashboard.actions.manifests import MOST_BYTES, as_yaml, read_manifest
from dashboard.actions.writer import WriteProblem, send
from ipuhub.api.kinds import KINDS
from ipuhub.web.access import access_of, is_admin, require_operator, scope_of, signed_in
from ipuhub.web.audit import JOB, AuditEvent, author_of
from ipuhub.web.problems import takes
from ipuhub.web.refusals import note_event, note_refusal
from jobs.selectors import find_job

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from dashboard.actions.changes import Change
    from jobs.models import JobRecord

_EXAMPLE: Final = """\
apiVersion: graphcore.ai/v1alpha1
kind: IPUJob
metadata:
  name: my-job
  namespace: default
spec:
  jobInstances: 1
  ipusPerJobInstance: 1
  workersPerJobInstance: 1
  workers:
    template:
      spec:
        containers:
          - name: worker
            image: python:3.11-slim
            command: [python, -c, "print('hello')"]
"""


def require_actor(request: HttpRequest, namespace: str = "") -> Actor:
    """Return the requesting user's identity in Kubernetes. Raise PermissionDenied with a sentence
    if the user may not change jobs."""
    found = require_kubernetes_user(request.user, namespace)
    return Actor(author_of(request), found)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@takes("instances", "name")
@never_cache
def act_on_job(request: HttpRequest, uid: str, key: str) -> HttpResponse:
    """Show what an action would do; a POST does it. Raises Http404 and PermissionDenied."""
    job = find_job(scope_of(request.user), uid)
    note_event(request, AuditEvent(JOB, key, job.name, job.namespace, job.uid))
    actor = require_actor(request, job.namespace)
    if key not in ACTIONS or key == CREATE:
        raise Http404(f"Actions are {', '.join(key for key in ACTIONS if key != CREATE)}.")
    given = request.POST if request.method == "POST" else request.GET
    values = {"instances": given.get("instances"), "name": given.get("name")}
    context: dict[str, Any] = {"job": job, "action": action_of(job, key), "actor": actor}
    context |= {"asks_name": key == RUN_AGAIN, "asks_instances": key == SCALE}
    context |= {"name": values["name"] or next_name(job.name)}
    context |= {"instances": values["instances"] or job.instances}
    if key == SCALE and values["instances"] is None and _is_offered(job, key):
        return render(request, "jobs/action.html", context)
    try:
        change = change_of(job, key, values)
        if request.method == "POST":
            return _do(request, change, actor)
        context |= _describe(change)
        context["warnings"] = send(change, actor.acts_as, dry_run=True).warnings
    except (BadChangeError, WriteProblem) as problem:
        return _refuse(request, "jobs/action.html", context, problem)
    return render(request, "jobs/action.html", context | {"is_allowed": True})


def _is_offered(job: JobRecord, key: str) -> bool:
    return key in {action.key for action in offered_actions(job)}


def _describe(change: Change) -> dict[str, Any]:
    if change.is_new:
        return {"manifest": as_yaml(change.body), "kubectl": change.kubectl}
    fields = [
        (name, "not set" if before is None else before, after)
        for name, before, after in change.fields
    ]
    return {"fields": fields, "kubectl": change.kubectl}


def _do(request: HttpRequest, change: Change, actor: Actor) -> HttpResponse:
    done = carry_out(change, actor)
    what = f"{change.namespace}/{change.name}"
    for warning in done.warnings:
        messages.warning(request, f"Kubernetes warns: {warning}")
    if change.is_new:
        message = f"Job {what} was created. It is listed as soon as the prober has recorded it."
        messages.success(request, message)
        query = urlencode({"namespace": change.namespace, "name": change.name})
        return redirect(f"{reverse('jobs:list')}?{query}")
    messages.success(request, f"Job {what} was {change.action.done}.")
    return redirect("jobs:detail", uid=done.entry.uid)


def _refuse(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    problem: BadChangeError | WriteProblem,
) -> HttpResponse:
    if isinstance(problem, WriteProblem):
        sentence, status = (
            problem.sentence(in_full=is_admin(request.user)),
            KINDS[problem.kind].status,
        )
    else:
        sentence, status = f"{problem.field}: {problem}", 400
    note_refusal(request, sentence)
    return render(request, template, context | {"problem": sentence}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@takes()
@never_cache
def create_job(request: HttpRequest) -> HttpResponse:
    """Show a form for a manifest; a POST checks it with a dry run, or creates the job.

    Raises PermissionDenied.
    """
    actor = require_actor(request)
    namespaces = access_of(request.user).operates.namespaces
    default = min(namespaces) if namespaces else "default"
    text = request.POST.get("manifest", _EXAMPLE.replace("default", default, 1))
    context: dict[str, Any] = {"text": text, "actor": actor, "most": MOST_BYTES // 1024}
    if request.method != "POST":
        return render(request, "jobs/create.html", context)
    try:
        change = create(read_manifest(text, default))
        require_operator(request.user, change.namespace)
        if request.POST.get("confirm") == "yes":
            return _do(request, change, actor)
        sent = send(change, actor.acts_as, dry_run=True)
    except (BadChangeError, WriteProblem) as problem:
        return _refuse(request, "jobs/create.html", context, problem)
    manifest = {key: sent.object.get(key) for key in ("apiVersion", "kind", "spec")}
    context |= {"is_allowed": True, "change": change, "made": as_yaml(manifest)}
    context["warnings"] = sent.warnings
    return render(request, "jobs/create.html", context)
