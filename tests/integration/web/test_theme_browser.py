"""A user who prefers a dark page gets it, with scripts and without, in the same colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings as django_settings

from tests.builders import jobhistory
from tests.builders.clients import browser as signed_in_client
from tests.fakes.chromium import expect
from tests.integration.web.livepages import page_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

STATES = ("Running", "Failed", "Completed", "Pending", "Restarting", "Suspended")
COLOURS = """() => [...document.querySelectorAll(
  "html, body, header, .card, .card-title, .badge, .table td a, .text-secondary, select, button"
)]
  .filter((part) => !part.closest("#stale, #keys, #health, .zone-switch, .theme-switch, [hidden]"))
  .map((part) => {
    const look = getComputedStyle(part);
    const { color, backgroundColor, borderTopColor, backgroundImage, colorScheme } = look;
    return [part.className, color, backgroundColor, borderTopColor, backgroundImage, colorScheme];
  })"""


def test_a_dark_page_needs_no_scripts(address: str, admin: User) -> None:
    for state in STATES:
        jobhistory.job(f"job-{state.lower()}", status=state)
    cookie = signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value
    found = {}
    for scheme in ("dark", "light"):
        for scripts in (True, False):
            with page_of(address, cookie, 1440, scripts=scripts) as page:
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.goto("/jobs/")
                found[scheme, scripts] = page.evaluate(COLOURS)
    assert len(found["dark", True]) > 40
    assert found["dark", False] == found["dark", True]
    assert found["light", False] == found["light", True]
    assert found["dark", True] != found["light", True]


TABULAR = """() => [...document.querySelectorAll("header *, main *")].filter((each) =>
    each.checkVisibility() && each.offsetWidth !== 0
    && [...each.childNodes].some((part) => part.nodeType === 3 && /\\d/.test(part.data)))
  .map((each) => [each.outerHTML.slice(0, 80), getComputedStyle(each)])
  .filter(([, look]) => look.fontVariantNumeric !== "tabular-nums" && !/mono/.test(look.fontFamily))
  .map(([words]) => words)"""
UNEVEN = """() => {
  const parts = [...document.querySelectorAll("main :is(.card, .alert, .empty)")];
  const insides = [...document.querySelectorAll("main .card > *")]
    .filter((each) => each.matches(".card-body, .card-header, .card-footer"));
  const bad = (pixels) => Math.abs(pixels / 4 - Math.round(pixels / 4)) > 0.01;
  const found = [...parts, ...insides].filter((each) => {
    const { paddingTop, paddingRight, paddingBottom, paddingLeft } = getComputedStyle(each);
    const sides = [paddingTop, paddingRight, paddingBottom, paddingLeft];
    return each.checkVisibility() && sides.map(parseFloat).some(bad);
  }).map((each) => each.className);
  const boxes = parts
    .filter((each) => each.checkVisibility() && !each.parentElement.closest(".card"))
    .map((each) => each.getBoundingClientRect());
  const gaps = (near, far, low, high) => boxes.flatMap((box) => {
    const after = boxes.filter((other) => other[near] >= box[far] - 1
      && Math.min(box[high], other[high]) - Math.max(box[low], other[low]) > 1);
    return after.length ? [Math.min(...after.map((other) => other[near])) - box[far]] : [];
  });
  const below = gaps("top", "bottom", "left", "right");
  const all = [...below, ...gaps("left", "right", "top", "bottom")];
  return [found, all.filter(bad), all.length];
}"""
ACCENTS = """() => {
  const probe = document.body.appendChild(document.createElement("i"));
  const parts = (colour) => {  // lightness, chroma, hue
    probe.style.color = `oklch(from ${colour} l c h)`;
    return getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number);
  };
  document.querySelector("main a").focus({ focusVisible: true });
  const clickable = "header a, main :is(a, button, summary, input, select)";
  const all = [...document.querySelectorAll(clickable)].filter(
    (each) => each.checkVisibility() && !each.closest("#health"));
  const found = all.flatMap((each) => {
    const { color, backgroundColor, boxShadow } = getComputedStyle(each);
    return [color, backgroundColor, /^[^)]*\\)/.exec(boxShadow)?.[0] ?? color];
  });
  const of = (selector, name) => [...document.querySelectorAll(selector)].slice(0, 1)
    .map((each) => getComputedStyle(each).getPropertyValue(name));
  const [accent] = of(":root", "--tblr-primary").map(parts);
  const uses = [...of("main a:focus", "outline-color"), ...of(".nav-link.active", "color"),
    ...of("main :is(td, .card-header) > a:not([class])", "color"),
    ...of("main .filters .btn-primary, main form .btn-primary", "background-color")];
  const hues = [...new Set(found)].map(parts).filter(([, chroma]) => chroma > 0.05);
  const used = uses.map(parts);
  probe.remove();
  return [accent, used, hues];
}"""


def test_pages_have_one_accent_one_rhythm_and_figures_of_one_width(
    address: str, admin: User
) -> None:
    """At 1440 px in both schemes, and on a phone; the header of a desk is 48 px high."""
    jobhistory.jobs(60)
    cookie = signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value
    with page_of(address, cookie, 1440) as page:
        for path in ("/", "/jobs/", "/utilization/"):
            page.goto(path)
            assert page.locator("header.navbar").evaluate("(head) => head.offsetHeight") == 48
            assert page.evaluate(TABULAR) == [], path
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
                expect(page.locator("html")).to_have_attribute("data-bs-theme", scheme)
                accent, uses, hues = page.evaluate(ACCENTS)
                assert accent[1] > 0.1
                assert min(use[1] for use in uses) > 0.08, (path, scheme, uses)
                assert max(abs(each[2] - accent[2]) for each in uses + hues) < 12, (path, hues)
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 860})
                paddings, gaps, measured = page.evaluate(UNEVEN)
                assert (paddings, gaps) == ([], []), (path, width)
                assert measured >= (5 if path == "/" else 1)
            page.set_viewport_size({"width": 1440, "height": 860})


def test_the_switch_changes_the_colours_and_is_remembered(address: str, admin: User) -> None:
    cookie = signed_in_client(admin).cookies[django_settings.SESSION_COOKIE_NAME].value
    with page_of(address, cookie, 1440) as page:
        page.emulate_media(color_scheme="light")
        page.goto("/jobs/")
        light = page.evaluate(COLOURS)
        page.locator("summary.nav-user").click()
        page.locator("[data-theme-switch]").click()
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        page.goto("/jobs/")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        assert page.evaluate(COLOURS) != light
