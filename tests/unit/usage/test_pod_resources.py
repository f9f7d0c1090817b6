"""The resources that a pod holds, by the scheduler's rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from usage.pods.resources import Held, PodSpec, held_by, requests_of

GIB = 2**30


def asks(limits: dict[str, Any] | None = None, **requests: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits or {}}}


def spec(*containers: Any, init: Any = (), **more: Any) -> PodSpec:
    manifest = {"containers": [*containers], "initContainers": [*init], **more}
    return msgspec.convert(manifest, PodSpec)


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("wish", "want_cpu", "want_memory"),
    [
        pytest.param(spec(), 0, 0, id="nothing asked"),
        pytest.param(spec({}, asks(cpu="1")), 1000, 0, id="a container without resources"),
        pytest.param(spec(asks(cpu="250m"), asks(cpu=2, memory="1Gi")), 2250, GIB, id="the sum"),
        pytest.param(spec(asks({"cpu": "2", "memory": "1Gi"}, cpu="1")), 1000, GIB, id="limits"),
        pytest.param(spec(asks(cpu="0.1m")), 1, 0, id="rounded up"),
        pytest.param(spec(asks(cpu="1"), init=[asks(cpu="3")]), 3000, 0, id="a large init step"),
        pytest.param(spec(asks(cpu="1"), init=[asks(cpu="500m")]), 1000, 0, id="a small init step"),
        pytest.param(
            spec(asks(cpu="1"), init=[asks(cpu="2") | SIDECAR]), 3000, 0, id="a sidecar adds"
        ),
        pytest.param(
            spec(asks(cpu="1"), init=[asks(cpu="2") | SIDECAR, asks(cpu="4")]),
            6000,
            0,
            id="an init step beside an earlier sidecar",
        ),
        pytest.param(
            spec(asks(cpu="1"), init=[asks(cpu="4"), asks(cpu="2") | SIDECAR]),
            4000,
            0,
            id="an init step before the sidecar",
        ),
        pytest.param(
            spec(asks(cpu="1"), overhead={"cpu": "100m", "memory": "64Mi"}),
            1100,
            64 * 2**20,
            id="overhead",
        ),
        pytest.param(
            spec(asks(cpu="1"), resources={"requests": {"cpu": "5"}}), 5000, 0, id="a whole pod's"
        ),
    ],
)
def test_cpu_and_memory(wish: PodSpec, want_cpu: int, want_memory: int) -> None:
    problems: list[str] = []
    held = held_by(wish, problems)
    assert (held.cpu_millicores, held.memory_bytes, problems) == (want_cpu, want_memory, [])


def test_accelerators_are_counted_by_name_and_together() -> None:
    amounts = {
        "nvidia.com/gpu": "2",
        "amd.com/gpu": 1,
        "gpu.intel.com/i915": "1",
        "gpu.intel.com/millicores": "1000",
        "graphcore.ai/ipu": "4",
        "example.com/fpga": "9",
        "ephemeral-storage": "1Gi",
    }
    held = held_by(spec(asks(amounts)), [])
    assert held.accelerators == {"nvidia.com/gpu": 2, "amd.com/gpu": 1, "gpu.intel.com/i915": 1}
    assert (held.gpus, held.ipus) == (4, 4)
    mapped = held_by(spec(asks(amounts)), [], ("example.com/*",))
    assert mapped.accelerators == {"example.com/fpga": 9}


@pytest.mark.parametrize("amount", ["many", "-1", "1e30", ""])
def test_an_amount_that_is_none_counts_nothing_and_is_told(amount: str) -> None:
    problems: list[str] = []
    held = held_by(spec(asks(cpu=amount, memory="1Gi")), problems)
    assert held == Held(0, GIB)
    assert problems[0].startswith("cpu: ")


def test_a_sum_beyond_64_bits_is_told() -> None:
    problems: list[str] = []
    held = held_by(spec(asks(memory="7Ei"), asks(memory="7Ei")), problems)
    assert held.memory_bytes == 0
    assert problems == ["memory: the sum does not fit 64 bits"]


def test_slices_of_a_gpu_count_by_their_own_name() -> None:
    wish = spec(asks(**{"nvidia.com/mig-1g.5gb": "3", "nvidia.com/gpu": "1", "nvidia.com/x": "9"}))
    held = held_by(wish, [])
    assert held.accelerators == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 3}
    assert held.gpus == 4


def test_only_the_last_few_hundred_specs_are_remembered() -> None:
    for number in range(3_000):
        assert requests_of(f'{{"nodeName":"n-{number}"}}'.encode()).node == f"n-{number}"
    assert requests_of.cache_info().currsize <= 512  # 2 KB each: a megabyte
