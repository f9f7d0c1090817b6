"""glue: the help page: the glossary, and links to the API reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.shortcuts import render
from django.views.decorators.http import require_safe

from ipuhub.web.access import signed_in
from ipuhub.web.problems import takes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest, HttpResponse

WORDS: Final[Mapping[str, str]] = {
    "Attempt": "One run of a job instance, from its pods' creation to its end. A restart or a "
    "resume starts the next attempt.",
    "Claim": "A user or group that a pod's annotation states and that IPUHub could not verify, "
    "because no IPUJob on record owns the pod.",
    "Closed month": "A month whose report no longer changes. Later findings become corrections.",
    "Complete until": "The time up to which the prober has recorded everything that happened. "
    "Facts after it may still be missing from a report.",
    "Correction": "A numbered CSV file of differences between a closed month's report and what the "
    "records say now.",
    "Drift": "A difference between the tracker and the partitions that a V-IPU controller lists.",
    "Estimated": "The end of a pod's or partition's lifetime was not observed. IPUHub uses the "
    "last time it was seen and states the uncertainty.",
    "Fault": "A pod, job or partition that the prober could not record exactly as it was written, "
    "for example a malformed annotation.",
    "Gap": "A period in which the prober saw nothing of a watch.",
    "Held idle": "Time in which a partition was held beyond the IPUs of the pods in it.",
    "Instance": "One of the identical copies of a job (jobInstances). Each has its own partition "
    "and workers and restarts on its own.",
    "IPU-Link domain": "The IPUs connected by IPU-Links. A partition lies inside one domain.",
    "Lifetime": "The time for which a pod or a partition counts: a pod from the moment it is "
    "scheduled to the end of its last container.",
    "Partition": "A power-of-two number of IPUs (1 to 64) that a V-IPU controller reserves for one "
    "job instance.",
    "Tracker": "The ConfigMap ipu-partitions-tracker. It says which job holds which partition.",
    "Verified user": "A user whose name the admission webhooks set, so that a manifest cannot "
    "claim another user.",
    "Watch": "A stream of changes that the prober reads: pods, jobs, partitions or capacity.",
}
"""The terms of the pages, as in docs/glossary.md."""


@require_safe
@signed_in
@takes()
def help_page(request: HttpRequest) -> HttpResponse:
    """Show the words; the reference of the API is a page of its own."""
    return render(request, "help.html", {"words": WORDS})
