"""The pages of actions, their refusals and confirmations as axe-core judges them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from tests.builders.clients import browser as signed_in_client
from tests.builders.roles import grant
from tests.fakes.longform import one_in_turn
from tests.integration.web.livepages import axe_violations, live_server, page_of, show_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from jobs.models import JobRecord
    from tests.integration.dashboard.actionslab import ActionsLab

LOOKS = (("light", 1280), ("dark", 390))
BAD_MANIFEST = "kind: Pod"


@pytest.mark.parametrize("begin", one_in_turn((0, 1), 0))
@pytest.mark.usefixtures("transactional_db")
def test_no_page_of_an_action_breaks_a_rule_of_accessibility(lab: ActionsLab, begin: int) -> None:
    """The next page in the next look; in the long form each page in both."""
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    ann: Any = get_user_model().objects.create_user("ann")
    grant(ann, "operator", "team-a")
    cookie = signed_in_client(ann).cookies[django_settings.SESSION_COOKIE_NAME].value
    train, asleep = lab.add("train"), lab.add("asleep", suspend=True)
    with live_server() as address, page_of(address, cookie, 1280) as page:
        judge = _Judge(page, cycle(LOOKS[begin:] + LOOKS[:begin]))
        _act(judge, train, asleep)
    assert judge.turns > 5 * len(LOOKS)
    assert not judge.found, "\n".join(judge.found)


@dataclass
class _Judge:
    page: Page
    looks: Iterator[tuple[str, int]]
    found: list[str] = field(default_factory=list)
    turns: int = 0

    def __call__(self, path: str = "") -> None:
        """Open `path`, or stay, and judge the page in the next look."""
        if path:
            self.page.goto(path)
        show_as(self.page, *next(self.looks))
        self.found += axe_violations(self.page)
        self.turns += 1


def _act(judge: _Judge, train: JobRecord, asleep: JobRecord) -> None:
    """Each action on a job that runs, and on a suspended job, to its end."""
    page = judge.page
    for job, action in ((train, "suspend"), (train, "cancel"), (asleep, "resume")):
        judge(f"/jobs/{job.uid}/do/{action}/")
    for query in ("", "?instances=3", "?instances=0"):
        judge(f"/jobs/{train.uid}/do/scale/{query}")
    judge(f"/jobs/{train.uid}/do/run-again/?name=Not+A+Name")
    _run_again(judge, train, f"{train.name}-again")
    judge(f"/jobs/{train.uid}/do/suspend/")
    page.get_by_role("button", name="Suspend the job").click()
    page.get_by_text("was suspended.").wait_for()
    judge()
    _create(judge)


def _run_again(judge: _Judge, job: JobRecord, name: str) -> None:
    judge(f"/jobs/{job.uid}/do/run-again/?name={name}")
    judge.page.get_by_role("button", name="Run again").click()
    judge.page.get_by_text(f"{name} was created.").wait_for()
    judge()


def _create(judge: _Judge) -> None:
    """The empty form, the accepted manifest, the refused manifest."""
    page = judge.page
    judge("/jobs/new/")
    for manifest, sentence in (
        (None, "Kubernetes accepts"),
        (BAD_MANIFEST, "must have apiVersion"),
    ):
        if manifest:
            page.get_by_label("Manifest of an IPUJob").fill(manifest)
        page.get_by_role("button", name="Check").click()
        page.get_by_text(sentence).wait_for()
        judge()
