"""The times at which credentials are read again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.credentials import ExecCredentials, FileCredentials
from ipuhub.kube.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class PlugIn:
    """Counts its runs; each gives a token that lives `life`."""

    def __init__(self, life: timedelta | None) -> None:
        self.now = NOON
        self.life = life
        self.runs = 0

    def __call__(self) -> dict[str, Any]:
        self.runs += 1
        status = {"token": f"t{self.runs}"}
        if self.life is not None:
            status["expirationTimestamp"] = (self.now + self.life).strftime("%Y-%m-%dT%H:%M:%SZ")
        return status


@pytest.mark.parametrize(
    ("life", "fresh_after", "stale_after"),
    [
        (timedelta(hours=1), timedelta(minutes=58), timedelta(minutes=59)),
        (timedelta(seconds=60), timedelta(seconds=47), timedelta(seconds=48)),
    ],
)
def test_a_plug_in_runs_again_shortly_before_its_token_ends(
    life: timedelta, fresh_after: timedelta, stale_after: timedelta
) -> None:
    plug_in = PlugIn(life)
    source = ExecCredentials(plug_in, lambda: plug_in.now)
    assert not source.is_fresh()
    assert source.read().authorization == "Bearer t1"
    plug_in.now = NOON + fresh_after
    assert source.is_fresh()
    plug_in.now = NOON + stale_after
    assert not source.is_fresh()


def test_a_token_without_an_end_is_kept_until_the_server_refuses_it() -> None:
    plug_in = PlugIn(None)
    source = ExecCredentials(plug_in, lambda: plug_in.now)
    source.read()
    plug_in.now = NOON + timedelta(days=10_000)
    assert source.is_fresh()
    source.invalidate()
    assert not source.is_fresh()


def test_a_plug_in_that_gives_nothing_is_explained() -> None:
    with pytest.raises(ConfigError, match="neither a token nor a client certificate"):
        ExecCredentials(dict, lambda: NOON).read()


def test_a_replaced_token_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    source = FileCredentials(token=str(path))
    assert not source.is_fresh()
    assert source.read().authorization == "Bearer one"
    assert source.is_fresh()
    fresh = tmp_path / "new"
    fresh.write_text("two\n")
    fresh.rename(path)
    assert not source.is_fresh()
    assert source.read().authorization == "Bearer two"


def test_a_missing_or_empty_token_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(ConfigError, match=str(path)):
        FileCredentials(token=str(path)).read()
    path.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        FileCredentials(token=str(path)).read()
