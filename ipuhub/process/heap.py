"""io: how the C library keeps the memory of a process that serves for days."""

from __future__ import annotations

import ctypes
from typing import Final

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


def give_back_what_is_free() -> None:
    """From now on return freed memory to the system soon. Other C libraries are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, amount in _MALLOC.values():
            mallopt(option, amount)
