"""The generated gRPC modules match the .proto files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partitions.vipu.protos import generate as generator
from partitions.vipu.protos.generate import FOLDER, generate

if TYPE_CHECKING:
    from pathlib import Path


def test_the_committed_modules_are_current(tmp_path: Path) -> None:
    made = {path.name: path.read_text() for path in generate(tmp_path)}
    committed = {path.name: path.read_text() for path in FOLDER.glob("*_pb2*.py*")}
    assert made == committed, "run `make proto`"


def test_a_proto_file_with_a_mistake_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.proto").write_text("message {")
    monkeypatch.setattr(generator, "FOLDER", tmp_path)
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    with pytest.raises(RuntimeError, match="refused"):
        generate(tmp_path)
