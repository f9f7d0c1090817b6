"""The dark theme without scripts: the rules of the sheets that it repeats, and their selector."""

from __future__ import annotations

import pytest

from ipuhub.web.darktheme import dark_style_sheet

DARK = '[data-bs-theme="dark"]'
UNSET = ':root[data-bs-theme=""]'


@pytest.mark.parametrize(
    ("sheet", "want"),
    [
        (f"{DARK} a, .b {{ x: y }}", [f"{UNSET} a {{ x: y }}"]),
        (f".b {{ x: y }} :root{DARK}{{x:y}}", [f"{UNSET} {{ x:y }}"]),
        (
            f"{DARK} :is(a, b:not(c)), {DARK} d {{ x: y }}",
            [f"{UNSET} :is(a, b:not(c)), {UNSET} d {{ x: y }}"],
        ),
        (
            f":is(a, b:not(c, e), {DARK} f), {DARK} d {{ x: y }}",
            [f"{UNSET} d {{ x: y }}"],
        ),
        (
            f'@charset "utf-8"; @media (width > 9px) {{ {DARK} a {{ x: y }} }}',
            ["@media (width > 9px) {", f"{UNSET} a {{ x: y }}", "}"],
        ),
        (f"@media print {{ {DARK} a {{ x: y }} }} /* {DARK} b {{ x: y }} */", []),
    ],
)
def test_rules_of_the_dark_theme_are_repeated_for_browsers_that_prefer_it(
    sheet: str, want: list[str]
) -> None:
    lines = dark_style_sheet([sheet]).splitlines()
    head = "@media screen and (prefers-color-scheme: dark) {"
    assert lines[1:] == [head, *want, "}"]
