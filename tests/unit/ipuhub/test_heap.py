"""Large freed memory returns to the system, also after larger blocks were freed."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """
import ctypes, sys
from ipuhub.process.runtime import return_free_memory

if sys.argv[2] == "ours":
    return_free_memory()
for _ in range(3):
    bytearray(2**20)
held = [bytes(256 * 1024) for _ in range(40)]
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
out = c.fopen(sys.argv[1].encode(), b"w")
c.malloc_info(0, ctypes.c_void_p(out))
c.fclose(ctypes.c_void_p(out))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc moves the bound")
def test_large_blocks_lie_apart_from_what_stays(tmp_path: Path) -> None:
    mapped = {}
    for how in ("ours", "usual"):
        report = tmp_path / how
        subprocess.run([sys.executable, "-c", _PROGRAM, str(report), how], check=True)
        found = re.search(r'type="mmap" count="(\d+)"', report.read_text("utf-8"))
        mapped[how] = int(found[1]) if found else 0
    assert mapped["ours"] >= 40
    assert mapped["usual"] < 40
