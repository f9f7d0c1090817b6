"""The page of a log in a browser: followed without a line twice, and used without JavaScript."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.fakes.logpods import BEGAN, LogPods, ended, running
from tests.fakes.waiting import wait_until
from tests.integration.web.livepages import live_server, page_of

if TYPE_CHECKING:
    from tests.fakes.background import Background, Cluster


FIRST_SEEN = """() => {
  const { top } = document.getElementById("log").getBoundingClientRect();
  const lines = [...document.querySelectorAll("#log .line")];
  const line = lines.find((each) => each.getBoundingClientRect().bottom > top);
  return [line.textContent, Math.round(line.getBoundingClientRect().top)];
}"""


@pytest.mark.usefixtures("transactional_db")
def test_a_log_is_followed_where_it_is_read_and_found_in_without_scripts(
    background: Background, cluster: Cluster, django_user_model: type
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    job = jobhistory.job(created_at=BEGAN)
    pods = LogPods(background, cluster, job)
    written = [f"step {number}" for number in range(90)]
    pod = pods.add(log="\n".join(written))
    pods.say(pod, running())
    with live_server() as address:
        with page_of(address, cookie, 1280) as page:
            page.goto(f"/jobs/{job.uid}/logs/")
            fields = page.locator(".log-form :is(.form-control, .form-select)")
            heights = fields.evaluate_all("(all) => all.map((each) => each.offsetHeight)")
            assert (len(heights), len({*heights})) == (4, 1)  # their labels are on one line
            follow = page.get_by_role("button", name="Follow")
            follow.click()
            for number in range(3):
                written.append(f"new {number}")
                pods.note(pod, "\n".join(written))
                page.get_by_text(f"new {number}", exact=True).wait_for()
                if number == 1:  # who reads what is above stays there
                    page.evaluate("document.getElementById('log').scrollTop = 200")
            assert page.evaluate("document.getElementById('log').scrollTop") == 200
            # What is followed does not grow for ever, and who reads above keeps the place.
            page.evaluate("document.getElementById('log').scrollTop = 600")
            page.evaluate("document.getElementById('log').dataset.most = 40")
            read = page.evaluate(FIRST_SEEN)
            written += [f"more {number}" for number in range(5)]
            pods.note(pod, "\n".join(written))
            page.get_by_text("more 4", exact=True).wait_for()
            expect(page.locator("#log .line")).to_have_count(80)
            assert page.evaluate(FIRST_SEEN) == read
            written = written[-80:]
            pods.say(pod, ended(0))
            wait_until(follow.is_disabled)
            assert page.locator("#log .line > span").all_inner_texts() == written
        with page_of(address, cookie, 390, scripts=False) as page:
            page.goto(f"/jobs/{job.uid}/logs/")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            page.get_by_label("Find").fill("NEW 2")
            page.get_by_role("button", name="Show").click()
            found = page.locator("#log mark")
            expect(found).to_have_text(["new 2"])
            assert page.get_by_role("button", name="Follow").count() == 0
