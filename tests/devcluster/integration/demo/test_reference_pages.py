"""Generated pages are current; every setting has a sentence, and its unit in its name."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command


def test_the_reference_pages_are_current() -> None:
    call_command("make_reference", check=True)


def test_a_stale_page_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.management.commands.make_reference._read", lambda _path: "old")
    with pytest.raises(CommandError, match=r"settings\.md.*make reference"):
        call_command("make_reference", check=True)


def test_every_setting_has_a_sentence_and_times_have_their_unit() -> None:
    for setting in settings.ENV.declared.values():
        assert setting.doc.rstrip().endswith("."), setting.name
        if setting.kind.startswith("number"):
            assert setting.name.endswith("_SECONDS"), setting.name
