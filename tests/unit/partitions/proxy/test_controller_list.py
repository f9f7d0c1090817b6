"""The list of V-IPU controllers as its ConfigMap has it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from ipuhub.kube.errors import Forbidden
from partitions.proxy.controllerlist import ControllerList

if TYPE_CHECKING:
    from pathlib import Path

    from ipuhub.kube.client import KubeClient

DENIED = Forbidden(403, "Forbidden", "configmaps may not be read")


class ConfigMaps:
    """Gives these answers, one after the other, and notes the list before each."""

    def __init__(self, answers: list[dict[str, str] | Forbidden]) -> None:
        self.answers, self.lists = answers, list[str]()
        self.controllers: ControllerList

    async def get(self, *_: object) -> dict[str, Any]:
        self.lists.append(self.controllers.read())
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Forbidden):
            raise answer
        return {"data": answer} if answer else {}


@pytest.mark.parametrize(
    ("answers", "want_lists", "want_warnings"),
    [
        ([{"list": "a"}, {"list": "b"}], ["file", "a", "b"], 0),
        ([{"list": "a"}, {"other": "b"}, {}], ["file", "a", "a", "a"], 0),
        ([{"other": "b"}], ["file", "file"], 0),
        ([DENIED, DENIED, {"list": "a"}], ["file", "file", "file", "a"], 1),
        ([{"list": "a"}, DENIED, {"list": "b"}, DENIED], ["file", "a", "a", "b", "b"], 2),
    ],
    ids=["edits", "the key is gone", "there is no key", "denied", "denied for a while"],
)
async def test_what_was_read_last_stays_and_what_prevents_a_read_is_logged_once(
    tmp_path: Path,
    answers: list[dict[str, str] | Forbidden],
    want_lists: list[str],
    want_warnings: int,
) -> None:
    path, maps = tmp_path / "list", ConfigMaps([*answers])
    path.write_text("file")
    maps.controllers = ControllerList(
        cast("KubeClient", maps), "default", path=str(path), configmap="controllers"
    )
    with capture_logs() as entries, pytest.raises(asyncio.CancelledError):
        await maps.controllers.run(every_seconds=0)
    assert maps.lists == want_lists
    assert [each["log_level"] for each in entries] == ["warning"] * want_warnings
