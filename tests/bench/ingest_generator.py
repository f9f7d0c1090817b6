"""A process that serves generated pods: `python -m ... <pods> <bytes>`.

Says its port, waits for a line on stdin, lets all events happen, and waits for the next line.
"""

from __future__ import annotations

import asyncio
import sys
import time

import orjson

from tests.fakes.podstream import STEPS, PodStream, pod_of


async def main(pods: int, size: int) -> None:
    """Render everything first, so that only sending is measured."""
    bare = len(orjson.dumps(pod_of(1, "RUNNING")))
    stream = PodStream(padding=max(0, size - bare))
    lines = rendered(stream, pods)
    async with stream:
        print(stream.port, sum(map(len, lines)) // len(lines), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            began = time.process_time()
            first = stream.revision + 1
            stream.log += [(first + n, line) for n, line in enumerate(lines)]
            stream.revision += len(lines)
            await stream.tell()
            print(stream.revision, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            print(time.process_time() - began, flush=True)
            stream.log.clear()
            stream.revision = first - 1


def rendered(stream: PodStream, pods: int) -> list[bytes]:
    """The lines of all events: 200 pods live at the same time."""
    for first in range(0, pods, 200):
        for step in STEPS:
            for number in range(first, min(first + 200, pods)):
                stream.step(number, step)
    lines = [line for _, line in stream.log]
    stream.log.clear()
    stream.revision = 100
    return lines


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
