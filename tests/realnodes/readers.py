"""A client that calls a Service repeatedly, over a new connection each time."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster

_READ = """
import collections, http.client, json, sys, threading
address, port, name, path = sys.argv[1:]
ended = threading.Event()
threading.Thread(target=lambda: sys.stdin.read() or ended.set(), daemon=True).start()
print("reading", flush=True)
found = collections.Counter()
while not ended.wait(0.05):
    caller = http.client.HTTPConnection(address, int(port), timeout=60)
    try:
        caller.request("GET", path, headers={"Host": name})
        found[str(caller.getresponse().status)] += 1
    except (OSError, http.client.HTTPException) as error:
        found[repr(error)] += 1
    finally:
        caller.close()
print(json.dumps(found))
"""


@dataclass
class Answers:
    """The count of each answer: a status, or the error in its place."""

    found: dict[str, int] = field(default_factory=dict)


@contextmanager
def reading(cluster: RealCluster, service: str, namespace: str, path: str) -> Iterator[Answers]:
    """Ask meanwhile from a node, by its rules for Services; the answers are there at the end."""
    spec = cluster.get("service", service, "-n", namespace)["spec"]
    where = (spec["clusterIP"], str(spec["ports"][0]["port"]), service, path)
    command = ["ip", "netns", "exec", "ihub-node-1", sys.executable, "-ISc", _READ, *where]
    answers = Answers()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        try:
            yield answers
        finally:
            output, _ = process.communicate(timeout=90)
        answers.found = json.loads(output)
