"""NetworkPolicies enforced on real nodes, and who then reaches whom.

The kit's network has no policy engine. Ours is kube-router's, of which `policyengine` makes a
program; it writes iptables rules and needs ipset. Connections are tried from inside a pod's network
by this machine's Python, so that any image will do.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.realnodes.kit import RealCluster

MACHINE = "10.231.76.1"  # this machine, as the nodes see it
_SERVICES = "10.96.0.0/16"
_SOURCES = Path(__file__).parent / "policyengine"
_SECONDS = 600
_CONNECT = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reaches(target):
    try:
        socket.create_connection(tuple(target), timeout=3).close()
    except OSError:
        return False  # refused by the engine, or dropped
    return True
with ThreadPoolExecutor(64) as pool:
    print(json.dumps(list(pool.map(reaches, json.load(sys.stdin)))))
"""
_LISTEN = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=64) as server:
    print("listening", flush=True)
    while True:
        server.accept()[0].close()
"""

Target = tuple[str, int]


def missing_for_engine() -> str:
    """Return the parts that the engine needs and this machine lacks; empty: none."""
    found = {"go": shutil.which("go"), "ipset": shutil.which("ipset", path=_path())}
    return ", ".join(name for name, program in found.items() if not program)


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def engine() -> Path:
    """The program, built once and kept beside the kit's."""
    parts = [(_SOURCES / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    program = Path(os.environ["CLUSTER_BIN"]) / f"policyengine-{digest}"
    if not program.exists():
        part = program.with_suffix(".part")
        flags = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
        command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(part), "."]
        subprocess.run(command, cwd=_SOURCES, env=os.environ | flags, check=True, timeout=_SECONDS)
        part.rename(program)
    return program


@contextmanager
def enforced(cluster: RealCluster, folder: Path) -> Iterator[None]:
    """Every node enforces NetworkPolicies meanwhile."""
    program, kubeconfig = engine(), folder / "engine.kubeconfig"
    text = cluster.kubeconfig.read_text("utf-8")
    kubeconfig.write_text(text.replace("https://127.0.0.1:", f"https://{MACHINE}:"))
    kubeconfig.chmod(0o600)
    nodes = [each["metadata"]["name"] for each in cluster.get("nodes")["items"]]
    with ExitStack() as stack:
        for node in nodes:
            options = ["-kubeconfig", str(kubeconfig), "-node", node, "-services", _SERVICES]
            log = stack.enter_context((folder / f"engine-{node}.log").open("wb"))
            running = subprocess.Popen(
                [*_inside(f"ihub-{node}"), str(program), *options],
                env=os.environ | {"PATH": _path()},
                stdout=log,
                stderr=log,
            )
            stack.callback(_clear, f"ihub-{node}")
            stack.callback(running.wait, 30)
            stack.callback(running.terminate)
        yield


def _inside(network: str) -> list[str]:
    return ["ip", "netns", "exec", network]


def _clear(network: str) -> None:
    """Take the engine's rules out of a node's network; kube-proxy's stay."""
    mine = "KUBE-ROUTER|KUBE-NWPLCY|KUBE-POD-FW"
    script = f"iptables-save | grep -vE '{mine}' | iptables-restore && ipset destroy"
    environment = os.environ | {"PATH": _path()}
    subprocess.run([*_inside(network), "sh", "-c", script], env=environment, check=True)


def networks() -> dict[str, str]:
    """Names of the pods' networks on this machine by the pod's address."""
    listed = subprocess.check_output(["ip", "-j", "netns", "list"], text=True)
    found = {}
    for each in json.loads(listed or "[]"):
        name = str(each["name"])
        if name.startswith("cni-"):
            output = subprocess.check_output(["ip", "-n", name, "-4", "-j", "addr"], text=True)
            addresses = [one["local"] for link in json.loads(output) for one in link["addr_info"]]
            found |= {address: name for address in addresses if address != "127.0.0.1"}
    return found


def reached(network: str, targets: Sequence[Target]) -> dict[Target, bool]:
    """Return which of these are reached from a pod's network; "": from this machine."""
    command = [*(_inside(network) if network else ()), sys.executable, "-ISc", _CONNECT]
    output = subprocess.check_output(command, input=json.dumps(targets), text=True, timeout=60)
    return dict(zip(targets, json.loads(output), strict=True))


@contextmanager
def listening(pods: Mapping[str, str], port: int, here: Sequence[int]) -> Iterator[None]:
    """A server answers on this port of each of these pods' networks, and of this machine's."""
    with ExitStack() as stack:
        for network in pods.values():
            command = [*_inside(network), sys.executable, "-ISc", _LISTEN, str(port)]
            stack.enter_context(_running(command))
        for number in here:
            with suppress(OSError):  # somebody listens there already, which does as well
                stack.enter_context(socket.create_server((MACHINE, number), backlog=128))
        yield


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"listening\n"
            yield
        finally:  # the end of `with` waits for it
            process.terminate()


if __name__ == "__main__":
    engine()
