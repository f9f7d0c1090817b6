"""Benchmarks run by hand only: that each still fits the code that it takes from elsewhere."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ipuhub.kube.resources import ListResult
from tests.bench.burst import refuse_too_few_nodes
from tests.bench.surroundings import NODE_LABEL

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient

FOLDER = Path(__file__).resolve().parents[2] / "bench"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("__"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_loaded(name: str) -> None:
    importlib.import_module(f"tests.bench.{name}")


class Nodes:
    """A cluster whose nodes have the labels, and room for ten pods each."""

    def __init__(self, *labels: str) -> None:
        self.labels = labels

    async def list(self, _resource: Any, *, label_selector: str = "") -> ListResult:
        node = {"status": {"allocatable": {"pods": "10"}}}
        return ListResult([node for label in self.labels if label_selector in {"", label}], "1")


@pytest.mark.parametrize(
    ("labels", "want_said"),
    [
        (["", ""], f"no node has the label {NODE_LABEL}"),
        (["", NODE_LABEL], f"the 1 nodes with the label {NODE_LABEL} take 10"),
        ([NODE_LABEL, NODE_LABEL], ""),
    ],
)
async def test_a_bench_says_which_nodes_its_pods_need(labels: list[str], want_said: str) -> None:
    client = cast("KubeClient", Nodes(*labels))
    if not want_said:
        await refuse_too_few_nodes(client, 20)
        return
    with pytest.raises(SystemExit, match=want_said):
        await refuse_too_few_nodes(client, 20)
