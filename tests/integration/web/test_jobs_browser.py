"""The pages of jobs in a browser: live, on a phone, without JavaScript; no error in the console."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from jobs.models import JobRecord
from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.fakes.waiting import wait_until
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def cookie(transactional_db: None, django_user_model: type) -> str:
    """A signed-in administrator, and some jobs to look at."""
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    jobhistory.jobs(60)
    job = jobhistory.job("a-job-with-quite-a-long-name-that-must-break-on-a-phone", status="Failed")
    jobhistory.pod(job, "launcher")
    jobhistory.pod(job)
    jobhistory.partition(job)
    return signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_their_window_and_break_no_policy(address: str, cookie: str, width: int) -> None:
    with page_of(address, cookie, width) as page:
        for path in ("/jobs/", "/account/tokens/"):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto("/jobs/?status=Failed")
        page.get_by_role("link", name="a-job-with").click()
        page.get_by_role("img", name="Partitions and pods of").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.get_by_role("link", name="Jobs", exact=True).first.is_visible()


def test_a_phone_shows_where_in_the_navigation_one_is(address: str, cookie: str) -> None:
    with page_of(address, cookie, 390) as page:
        for path, name in (
            ("/", "Overview"),
            ("/usage/reports/", "Reports"),
            ("/system/", "System"),
        ):
            page.goto(path)
            box = page.get_by_label("Main").get_by_role("link", name=name).bounding_box()
            assert box
            assert 0 <= box["x"] <= box["x"] + box["width"] <= 390, path
        nav = page.locator(".main-nav")
        for width in (390, 375):  # all entries are in view, none behind the edge
            page.set_viewport_size({"width": width, "height": 844})
            assert nav.evaluate("(row) => row.scrollWidth - row.clientWidth") <= 0
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto("/audit/")  # the tabs of a section, too
        tab = page.get_by_label("Section").get_by_role("link", name="Audit").bounding_box()
        assert tab
        assert tab["x"] + tab["width"] <= 390


def test_a_filter_changes_list_address_and_what_is_said_without_a_reload(
    address: str, cookie: str
) -> None:
    with page_of(address, cookie, 1280) as page:
        page.goto("/jobs/")
        page.locator("#health.is-up, #health.is-down, #health.is-unknown").wait_for()
        assert page.locator("#said").inner_text() == ""  # the header is no news of the page
        field = page.get_by_role("combobox", name="Namespace")
        assert page.locator("option", has=page.locator("xpath=parent::datalist")).count() == 0
        field.focus()
        page.locator('#suggested-namespace option[value="team-a"]').wait_for(state="attached")
        assert field.evaluate("(input) => input.list.options.length") == 1
        assert page.locator("#suggested-name option").count() > 10
        page.evaluate("window.sameDocument = true")
        page.get_by_role("combobox", name="State").select_option("Failed")
        page.get_by_text("1 job", exact=True).first.wait_for()
        page.wait_for_url("**/jobs/?status=Failed")
        page.locator("#said").filter(has_text=re.compile("^1 job$")).wait_for(state="attached")
        with page.expect_response(lambda answer: answer.status == 304) as unchanged:
            pass
        assert "status=Failed" in unchanged.value.url
        assert page.locator("#rows tbody tr").count() == 1
        assert page.evaluate("window.sameDocument")


def test_without_javascript_filters_and_paging_work(address: str, cookie: str) -> None:
    with page_of(address, cookie, 390, scripts=False) as page:
        page.goto("/jobs/")
        page.get_by_role("link", name="Older").click()
        expect(page.locator("#rows tbody tr")).to_have_count(11)
        page.get_by_text("Filters").click()
        page.get_by_role("combobox", name="State").select_option("Failed")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("#rows tbody tr")).to_have_count(1)


def in_thread(work: Callable[[], object]) -> None:
    """Do it in a thread: Playwright has an event loop in this thread, which Django refuses."""

    def run() -> None:
        work()
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def change(name: str, **fields: str) -> None:
    """Change a job."""
    jobs = JobRecord.objects.filter(name=name)
    in_thread(lambda: jobs.update(updated_at=timezone.now(), **fields))


def test_what_changes_by_itself_is_tinted_in_a_list_and_said_on_its_page(
    address: str, cookie: str
) -> None:
    """A row by its class, which the stylesheet lets fade; the page by a line at its edge."""
    name = "a-job-with-quite-a-long-name-that-must-break-on-a-phone"
    JobRecord.objects.filter(name=name).update(created_at=timezone.now())  # the first of its list
    with page_of(address, cookie, 1280) as page:
        page.goto("/jobs/")
        assert page.locator("tr.is-news").count() == 0
        change(name, status="Restarting")
        page.locator("tr.is-news").filter(has_text=name).wait_for()
        assert page.locator("tr.is-news").count() == 1
        page.get_by_role("link", name="a-job-with").click()
        page.locator(".job-head").wait_for()
        assert not page.locator("#toast").is_visible()
        change(name, status="Completed")
        page.locator("#toast").wait_for()
        assert page.locator("#toast").inner_text() == f"{name} is Completed"


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_no_entry_of_a_navigation_moves_between_pages(
    address: str, cookie: str, width: int
) -> None:
    """The active entry is bold, and all keep their places."""
    js = "all => all.map((each) => [each.innerText, each.getBoundingClientRect().width])"
    groups = (
        (".main-nav a", ("/", "/jobs/", "/queue/", "/usage/reports/", "/system/")),
        (".section-tabs a", ("/account/tokens/", "/account/password/", "/account/notifications/")),
        (".section-tabs a", ("/usage/", "/utilization/", "/usage/gaps/")),
    )
    with page_of(address, cookie, width) as page:
        for entries, paths in groups:
            found = []
            for path in paths:
                page.goto(path)
                found.append(page.locator(entries).evaluate_all(js))
            assert len(found[0]) > 3
            assert all(each == found[0] for each in found), paths


PHONE = 844  # pixels of a screen
SHOWN = "(row) => [...row.cells].filter((cell) => cell.offsetHeight).map((c) => c.dataset.label)"


TWO_LINES = {
    "/jobs/": {"State", "Job", "IPUs", "Created", "Message"},
    "/partitions/": {"State", "Job", "IPUs", "Reserved", "Partition", "Namespace"},
    "/usage/pods/": {"End", "Pod", "IPUs", "Type", "Scheduled", "User"},
}


@pytest.mark.parametrize("path", TWO_LINES)
def test_a_page_of_a_list_takes_at_most_four_screens_of_a_phone(
    address: str, cookie: str, path: str
) -> None:
    """Two lines a row."""
    for job in JobRecord.objects.all():
        jobhistory.pod(job, pod_name=f"{job.name}-worker-1", instance_type="ipu-4", user="ada")
        jobhistory.partition(job, attempt=1)
    with page_of(address, cookie, 390) as page:
        page.goto(path)
        rows = page.locator("#rows tbody tr")
        assert rows.count() == 50
        assert page.locator("#rows").evaluate("(list) => list.offsetHeight") <= 4 * PHONE
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert set(rows.first.evaluate(SHOWN)) == TWO_LINES[path]


def test_a_line_of_a_phone_is_a_link_and_chosen_columns_are_cards(
    address: str, cookie: str
) -> None:
    with page_of(address, cookie, 390) as page:
        page.goto("/jobs/")
        row = page.locator("#rows tbody tr").nth(3)
        name = row.locator("a").inner_text()
        row.click(position={"x": 340, "y": 45})
        page.get_by_role("heading", name=name).wait_for()
        page.goto("/jobs/?columns=name&columns=workers&columns=ipus")
        labels = page.locator("#rows tbody tr").first.evaluate(SHOWN)
        assert set(labels) == {"Job", "Workers", "IPUs"}


@pytest.mark.parametrize("width", [1440, 1200])
def test_a_desk_has_brand_and_navigation_in_one_row_and_apart(
    address: str, cookie: str, width: int
) -> None:
    """The distance between the texts of two entries equals the distance from the brand's text."""
    ends = """() => ["main-nav a", "navbar-brand"].flatMap((kind) =>
      [...document.querySelectorAll(`.${kind}`)].map((entry) => {
        const range = document.createRange();
        range.selectNodeContents(entry);
        const { left, right, top, bottom } = range.getBoundingClientRect();
        return [left, right, (top + bottom) / 2];
      })).sort((a, b) => a[0] - b[0])"""
    with page_of(address, cookie, width) as page:
        page.goto("/jobs/")
        page.locator("#health.is-up, #health.is-down, #health.is-unknown").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.evaluate(ends)
        assert len(boxes) == 8
        gaps = [after[0] - before[1] for before, after in pairwise(boxes)]
        assert gaps[0] >= max(gaps[1:]) > 8
        assert max(box[2] for box in boxes) - min(box[2] for box in boxes) < 4
        out = page.locator("summary.nav-user").bounding_box()
        assert out
        assert abs(out["y"] + out["height"] / 2 - boxes[0][2]) < 4


HEIGHTS = "(all) => all.map((each) => each.getBoundingClientRect().height)"
IN_VIEW = "(all) => all.filter((e) => e.getBoundingClientRect().bottom <= innerHeight).length"
COLUMNS = "(grid) => getComputedStyle(grid).gridTemplateColumns.split(' ').length"


def test_a_desk_shows_18_jobs_and_a_wide_window_is_used(address: str, cookie: str) -> None:
    """Rows and heads of cards have one height; on a phone the figures stand in two columns."""
    with page_of(address, cookie, 1440) as page:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto("/jobs/")
        rows = page.locator("#rows tbody tr")
        assert rows.evaluate_all(IN_VIEW) >= 18
        assert max(rows.evaluate_all(HEIGHTS)) <= 36
        page.goto("/")
        assert set(page.locator("main .card-header").evaluate_all(HEIGHTS)) == {44}
        page.set_viewport_size({"width": 1920, "height": 900})
        for path in ("/", "/jobs/"):
            page.goto(path)
            box = page.locator("main .container-xl, main.container-xl").first.bounding_box()
            assert box
            assert box["width"] == 1800, path
            assert page.evaluate("document.documentElement.scrollWidth") <= 1920, path
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto("/")
        assert page.locator(".figures").evaluate(COLUMNS) == 2


MOVES = """() => {
  document.querySelector("#rows tbody tr").classList.add("is-news");
  const looks = [...document.querySelectorAll("*")].map((each) => getComputedStyle(each));
  return looks.some((look) => look.animationName !== "none" || look.transitionDuration !== "0s");
}"""


def test_nothing_moves_for_a_reader_who_wants_no_motion(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        page.goto("/jobs/")
        for wish, moves in (("no-preference", True), ("reduce", False)):
            page.emulate_media(reduced_motion=wish)  # type: ignore[arg-type]
            assert page.evaluate(MOVES) == moves


def test_a_button_copies_the_name_of_a_job(address: str, cookie: str) -> None:
    name = "a-job-with-quite-a-long-name-that-must-break-on-a-phone"
    with page_of(address, cookie, 1280) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto("/jobs/?status=Failed")
        page.get_by_role("link", name=name).click()
        button = page.locator(f'button[data-copy="{name}"]')
        button.wait_for()
        page.evaluate("navigator.clipboard.writeText('from another test')")
        button.click()
        read = "navigator.clipboard.readText()"
        wait_until(lambda: page.evaluate(read) == name, "the name in the clipboard")


def test_keys_search_and_walk_through_the_rows(address: str, cookie: str) -> None:
    with page_of(address, cookie, 1280) as page:
        page.goto("/jobs/")
        page.keyboard.press("Control+k")
        search = page.locator("header input[type=search]")
        expect(search).to_be_focused()
        search.evaluate("(box) => box.blur()")
        links = page.locator("#rows tbody tr td a:first-of-type")
        for key, row in (("j", 0), ("j", 1), ("k", 0), ("k", 0)):
            page.keyboard.press(key)
            expect(links.nth(row)).to_be_focused()
