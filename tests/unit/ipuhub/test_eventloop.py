"""The loop of the processes that serve: its results, its errors, its few collections."""

from __future__ import annotations

import asyncio
import gc
import json
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import uvloop

from ipuhub.process import runtime

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, gc, json
from ipuhub.process import runtime as eventloop

async def work():
    return type(asyncio.get_running_loop()).__module__, gc.get_freeze_count(), gc.get_threshold()

print(json.dumps(eventloop.run(work())))
"""


@pytest.fixture(autouse=True)
def _collector_as_before() -> object:

    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_a_process_gets_the_quick_loop_and_leaves_what_is_loaded_alone() -> None:
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    loop, frozen, thresholds = json.loads(output)
    assert loop == uvloop.Loop.__module__
    assert frozen > 1000
    assert thresholds[0] >= 10_000


def test_it_gives_the_result() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert runtime.run(work()) == 7


def test_it_raises_what_the_work_raises_and_cancels_what_the_work_leaves_behind() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    async def work() -> None:
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        raise ValueError(f"no {task.done()}")

    with pytest.raises(ValueError, match="no False"):
        runtime.run(work())
    assert ended == ["cancelled"]


_ARENAS = """
import asyncio, ctypes, sys
from ipuhub.process import runtime as eventloop

async def work():
    loop = asyncio.get_running_loop()
    held = await asyncio.gather(*(
        loop.run_in_executor(None, lambda: [bytes(20_000) for _ in range(200)]) for _ in range(8)
    ))
    c = ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    out = c.fopen(sys.argv[1].encode(), b"w")
    c.malloc_info(0, ctypes.c_void_p(out))
    c.fclose(ctypes.c_void_p(out))
    return held

if sys.argv[2] == "ours":
    eventloop.run(work())
else:
    asyncio.run(work())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_all_threads_share_one_heap(tmp_path: Path) -> None:
    heaps = {}
    for loop in ("ours", "asyncio"):
        report = tmp_path / loop
        subprocess.run([sys.executable, "-c", _ARENAS, str(report), loop], check=True)
        heaps[loop] = report.read_text("utf-8").count("<heap nr=")
    assert heaps["ours"] == 1
    assert heaps["asyncio"] > 1
