"""No page shows a link that its reader may not follow."""

from __future__ import annotations

import re
from collections import Counter, deque
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.urls import resolve
from django.utils import timezone

from ipuhub.models import RecordFault, WatchCheckpoint, WatchGap
from ipuhub.roles import ACCOUNTANT, EVERYWHERE, OPERATOR, VIEWER
from tests.builders import jobhistory
from tests.builders.clients import browser
from tests.builders.roles import grant

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db
LINK = re.compile(r'<a [^>]*href="(/[^"#]*)')
AT_MOST = 3  # of one view: its links differ by rows and filters


@pytest.fixture
def history() -> None:
    """A job that failed, a fault, and a gap."""
    now = timezone.now()
    WatchCheckpoint.objects.create(name="ipujobs", position_at=now)
    WatchGap.objects.create(watch="ipujobs", began_at=now, ended_at=now, cause="test")
    RecordFault.objects.create(
        watch="ipujobs", uid="u", code="odd", message="odd", first_at=now, last_at=now
    )
    job = jobhistory.job("broken", "team-a", status="Failed", completed_at=now)
    jobhistory.pod(job)
    jobhistory.partition(job)


def refused_links(client: Client) -> list[str]:
    """Follow the links from the overview; return those that are refused."""
    waiting, seen = deque([("/", "start")]), {"/"}
    visits: Counter[str] = Counter()
    refused = []
    while waiting:
        path, origin = waiting.popleft()
        view = resolve(path.partition("?")[0]).view_name
        visits[view] += 1
        if visits[view] > AT_MOST:
            continue
        answer = client.get(path, follow=True)
        if answer.status_code >= 400:
            refused.append(f"{path} on {origin}: {answer.status_code}")
        if answer.streaming:  # a file that nobody reads keeps its place among the downloads
            assert b"".join(answer.streaming_content), path
            continue
        if not answer["Content-Type"].startswith("text/html"):
            continue
        found = [unescape(link) for link in LINK.findall(answer.content.decode())]
        found = [link for link in found if "format=" not in link]  # files: tested with lists
        waiting.extend((link, path) for link in found if link not in seen)
        seen.update(found)
    assert len(visits) > 10
    return refused


@pytest.mark.parametrize(
    ("role", "namespace"),
    [
        (VIEWER, EVERYWHERE),
        (VIEWER, "team-a"),
        (OPERATOR, EVERYWHERE),
        (ACCOUNTANT, EVERYWHERE),
        (ACCOUNTANT, "team-a"),
        ("staff", ""),
    ],
)
def test_every_link_that_is_shown_can_be_followed(history: None, role: str, namespace: str) -> None:
    user = get_user_model().objects.create_user("reader", is_staff=role == "staff")
    if namespace:
        grant(user, role, namespace)
    client = browser(user)
    assert refused_links(client) == []
    sees_faults = role == "staff" or (role, namespace) == (ACCOUNTANT, EVERYWHERE)
    assert ("in recorded data" in client.get("/").content.decode()) is sees_faults
