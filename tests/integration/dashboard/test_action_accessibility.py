"""The pages of actions, their refusals and confirmations as axe-core judges them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from tests.builders.clients import browser as signed_in_client
from tests.builders.roles import grant
from tests.integration.web.livepages import axe_violations, live_server, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from jobs.models import JobRecord
    from tests.integration.dashboard.actionslab import ActionsLab

LOOKS = (("light", 1280), ("dark", 390))
BAD_MANIFEST = "kind: Pod"


@pytest.mark.usefixtures("transactional_db")
def test_no_page_of_an_action_breaks_a_rule_of_accessibility(lab: ActionsLab) -> None:
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    ann: Any = get_user_model().objects.create_user("ann")
    grant(ann, "operator", "team-a")
    cookie = signed_in_client(ann).cookies[django_settings.SESSION_COOKIE_NAME].value
    found = []
    made = [
        (lab.add(f"train-{n}"), lab.add(f"asleep-{n}", suspend=True)) for n in range(len(LOOKS))
    ]
    with live_server() as address, page_of(address, cookie, 1280) as page:
        for (scheme, width), jobs in zip(LOOKS, made, strict=True):
            page.set_viewport_size({"width": width, "height": 860})
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            found += _judged(page, *jobs)
    assert not found, "\n".join(found)


def _judged(page: Page, train: JobRecord, asleep: JobRecord) -> list[str]:
    """Each action on a job that runs, and on a suspended one, to its end."""
    found = []
    for job, action in ((train, "suspend"), (train, "cancel"), (asleep, "resume")):
        found += axe_violations(page, f"/jobs/{job.uid}/do/{action}/")
    for query in ("", "?instances=3", "?instances=0"):
        found += axe_violations(page, f"/jobs/{train.uid}/do/scale/{query}")
    found += axe_violations(page, f"/jobs/{train.uid}/do/run-again/?name=Not+A+Name")
    found += _run_again(page, train, f"{train.name}-again")
    found += axe_violations(page, f"/jobs/{train.uid}/do/suspend/")
    page.get_by_role("button", name="Suspend the job").click()
    page.get_by_text("was suspended.").wait_for()
    found += axe_violations(page)
    return found + _create(page)


def _run_again(page: Page, job: JobRecord, name: str) -> list[str]:
    found = axe_violations(page, f"/jobs/{job.uid}/do/run-again/?name={name}")
    page.get_by_role("button", name="Run again").click()
    page.get_by_text(f"{name} was created.").wait_for()
    return found + axe_violations(page)


def _create(page: Page) -> list[str]:
    """The empty form, the accepted manifest, the refused one."""
    found = axe_violations(page, "/jobs/new/")
    for manifest, said in ((None, "Kubernetes accepts"), (BAD_MANIFEST, "must have apiVersion")):
        if manifest:
            page.get_by_label("Manifest of an IPUJob").fill(manifest)
        page.get_by_role("button", name="Check").click()
        page.get_by_text(said).wait_for()
        found += axe_violations(page)
    return found
