"""Benchmarks run by hand only: that each still fits the code that it takes from elsewhere."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "bench"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("__"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_loaded(name: str) -> None:
    importlib.import_module(f"tests.bench.{name}")
