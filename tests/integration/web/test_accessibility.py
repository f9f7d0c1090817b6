"""Every page as axe-core judges it: WCAG 2.2 A and AA, wide and narrow, light and dark."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from tests.builders.clients import browser as signed_in_client
from tests.builders.everypage import jobs_of_each_kind
from tests.fakes.longform import IS_LONG
from tests.integration.web.addresses import page_addresses
from tests.integration.web.livepages import (
    axe_violations,
    live_server,
    page_of,
    show_as,
)
from tests.integration.web.looks import SCHEMES, WIDTHS, looks_of
from usage.reports.making import make_month
from usage.time.months import usage_zone
from usage.time.windows import Month

if TYPE_CHECKING:
    from django.test import Client

MORE = ("/usage/?by=job", "/usage/?window=lastmonth", "/search/?q=train", "/fleet/?fill=state")
FEWEST_PAGES, SHARES = 30, 2
NO_CLUSTER = {"jobs:act"}  # on a cluster in tests/integration/dashboard/test_action_accessibility


def all_pages(client: Client, job: str, month: str) -> list[str]:
    """The addresses of the URL table that answer an administrator with a whole page."""
    known = page_addresses(uid=job, month=month, key="suspend")
    known["usage:statement"] += "?group=team-a"
    found = []
    for name, address in known.items():
        answer = client.get(address)
        is_html = answer.get("Content-Type", "").startswith("text/html")
        if is_html and name not in NO_CLUSTER and answer.status_code == 200:
            found += [address] if "<main" in answer.content.decode() else []
    assert len(found) > FEWEST_PAGES
    return [*found, *MORE]


WITH_TIMES = ("/", "/jobs/", "/jobs/{job}/", "/jobs/{job}/events/", "/usage/pods/", "/system/")


@pytest.mark.parametrize("share", range(SHARES))
def test_no_page_breaks_a_rule_of_accessibility(
    transactional_db: None, plain_http: None, django_user_model: Any, share: int
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    job = jobs_of_each_kind().uid
    month = f"{timezone.now():%Y-%m}"
    make_month(Month.parse(month), timezone.now(), usage_zone())
    client = signed_in_client(user)
    cookie = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    paths = [*enumerate(all_pages(client, job, month))][share::SHARES]
    found = []
    with live_server() as address, page_of(address, cookie, WIDTHS[0]) as page:
        for number, path in paths:
            for first, look in enumerate(looks_of(number)):
                show_as(page, look.scheme, look.width)
                found += axe_violations(page, "" if first else path, look.rules)
    assert not found, "\n".join(found)


def test_the_short_form_has_each_width_with_each_scheme_and_each_page_in_both_schemes() -> None:
    pages = [looks_of(turn, is_long=False) for turn in range(FEWEST_PAGES)]
    assert all({look.scheme for look in looks} == set(SCHEMES) for looks in pages)
    by_all_rules = {(look.width, look.scheme) for looks in pages for look in looks[:1]}
    by_colours = {(look.width, look.scheme) for looks in pages for look in looks[1:]}
    assert by_all_rules == by_colours == set(product(WIDTHS, SCHEMES))
    assert len(looks_of(0, is_long=True)) == len(WIDTHS) * len(SCHEMES)


@pytest.mark.parametrize(("turn", "width", "scheme"), [(0, 390, "light"), (1, 1280, "dark")])
def test_times_of_the_browsers_zone_break_no_rule_either(
    transactional_db: None,
    plain_http: None,
    django_user_model: Any,
    turn: int,
    width: int,
    scheme: str,
) -> None:
    user = django_user_model.objects.create_user("root", password="x", is_staff=True)
    job = jobs_of_each_kind().uid
    cookie = signed_in_client(user).cookies[django_settings.SESSION_COOKIE_NAME].value
    with (
        live_server() as address,
        page_of(address, cookie, width, zone="Australia/Adelaide") as page,
    ):
        page.add_init_script("localStorage.setItem('zone', 'local')")
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = []
        for path in WITH_TIMES if IS_LONG else WITH_TIMES[turn::2]:
            found += axe_violations(page, path.format(job=job))
            assert page.locator("[data-zone-switch] span").text_content() == "Australia/Adelaide"
            assert page.locator("[data-zone-note]").is_visible()
    assert not found, "\n".join(found)
