"""io: the event loop of processes that serve thousands of requests: uvloop, rare garbage
collection.

Also how the C library returns memory in a process that runs for days, and how many files a process
may open.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import resource
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

# glibc's mallopt. One arena for all threads, since one of them does nearly all work; free memory
# at the end of the heap goes back to the system; and what is large is mapped by itself and goes
# back when it is freed. By default glibc raises the last bound to the largest block that it has
# seen freed: buffers of TLS connections (256 KiB) and answers to lists then lie between small
# objects that stay, and leave holes. In a quarter of an hour a fifth of the embedded API's heap
# was holes; an operator with 20,000 pods keeps 10 MiB less after a list.
_MALLOC: Final = {
    "M_ARENA_MAX": (-8, 1),
    "M_TRIM_THRESHOLD": (-1, 128 * 1024),
    "M_MMAP_THRESHOLD": (-3, 64 * 1024),
}


def return_free_memory() -> None:
    """From now on return freed memory to the system soon. Other C libraries are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, amount in _MALLOC.values():
            mallopt(option, amount)


def allow_open_files() -> int:
    """Raise the soft limit of open files to the hard limit, and return the limit then in force."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems allow less than the hard limit says.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1_000_000 if soft == resource.RLIM_INFINITY else soft


T = TypeVar("T")
# Objects made and not gone, a step of the collector, and steps of the step before: each request
# makes hundreds that end by themselves, and looking for cycles among them was a tenth of the CPU.
_THRESHOLDS: Final = (10_000, 20, 20)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, as `asyncio.run` does, and return its result or raise its error."""
    import uvloop  # who only waits to be stopped loads none

    gc.freeze()  # loaded modules stay: collections need not scan them again
    gc.set_threshold(*_THRESHOLDS)
    return_free_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set; call it on the running loop.

    A loop hears every signal. A thread that waits for a lock does not: a signal that comes just
    before it blocks, or that another thread takes, does not wake it.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until_stopped(work: Awaitable[None]) -> None:
    """Run `work` until it ends or the process is stopped; then cancel it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
