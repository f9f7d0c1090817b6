"""A process that serves generated pods: `python -m ... <pods> <bytes> <stamped or plain>`.

Says its port, waits for a line on stdin, lets all events happen, and waits for the next line.
"""

from __future__ import annotations

import asyncio
import sys
import time

import orjson

from tests.fakes.podstream import STEPS, PodStream, pod_of

PODS_A_JOB = 20


async def main(pods: int, size: int, *, stamped: bool) -> None:
    """Render everything first, so that only sending is measured."""
    bare = len(orjson.dumps(pod_of(1, "RUNNING")))
    stream = PodStream(padding=max(0, size - bare))
    lines = rendered(stream, pods)
    if stamped:
        lines = [with_stamp(line) for line in lines]
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


def job_of(pod: str) -> str:
    """UID of the job of a pod's name."""
    number = int(pod.rpartition("-")[2])
    return f"job-{number % 3}-{number // (3 * PODS_A_JOB)}"  # of one of three namespaces


def with_stamp(line: bytes) -> bytes:
    """The event of a pod as the operator makes it for a job."""
    event = orjson.loads(line)
    meta = event["object"]["metadata"]
    job = job_of(meta["name"])
    usage = orjson.loads(meta["annotations"].pop("primehub.io/usage"))
    usage |= {"component": "ipujob", "component_name": job, "partition": job, "ipus": 200_000}
    meta["annotations"]["ipuhub.io/usage"] = orjson.dumps(usage).decode()
    meta["labels"] |= {"graphcore.ai/ipujob-uid": job, "graphcore.ai/role": "worker"}
    owner = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "name": job, "uid": job}
    meta["ownerReferences"] = [owner | {"controller": True}]
    return orjson.dumps(event) + b"\n"


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), stamped=sys.argv[3] == "stamped"))
