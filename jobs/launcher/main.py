#!/usr/bin/python3 -IS
"""glue: `ipuhub-launcher`: waits for the workers, delivers kubectl, opens the gate.

It exits with 0 when the launcher's command may start; otherwise with 1 and a message, which
Kubernetes shows as the container's message. It runs with a tenth of a CPU before each job. So it is
one file that imports only the few standard modules that load fast: run it as `python3 -IS main.py`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import sys
import time

TYPE_CHECKING = False  # the module `typing` takes 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    Manifest = dict[str, Any]

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PROGRAM, CARRIER, ATTEMPT = "kubectl", "IPUHubRecord", "graphcore.ai/attempt"
FINISHED = frozenset({"Completed", "Failed"})
RETRY_SECONDS = 2.0
NOT_YET_SECONDS = 0.3  # the account's rights are made while the pod starts
WATCH_SECONDS = 30
MOST_NAMED = 3
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404

# What is read of each object: a type, the fields of an object, or what every entry of a list is.
NEEDED = frozenset({"attempt", "index", "metadata", "name", "resourceVersion", "type"})
CONDITIONS = [dict.fromkeys(("type", "status", "reason", "message"), str)]
CONTAINERS = ("initContainerStatuses", "containerStatuses")
WAITING = [{"state": {"waiting": {"reason": str, "message": str}}}]
POD = {
    "metadata": {"name": str, "deletionTimestamp": str, "labels": {ATTEMPT: str}},
    "status": {"phase": str, "conditions": CONDITIONS, **dict.fromkeys(CONTAINERS, WAITING)},
}
POD_LIST = {"metadata": {"resourceVersion": str}, "items": [POD]}
JOB = {"metadata": {"uid": str, "deletionTimestamp": str}}
OWN_FIELDS = {"instances": [{"index": int, "attempt": int, "state": str}]}
STATUS = {"launcherStatus": str, "conditions": CONDITIONS, **OWN_FIELDS}
BAD_JOB, BAD_POD = (f"the API server sent a malformed {kind}" for kind in ("job", "pod"))
BAD_STATUS = "the job's status is malformed; waiting for the operator to rewrite it"


class LauncherError(Exception):
    """The command must not start; the message says why."""


class NoAnswerError(Exception):
    """The API server does not answer, or not as expected; the request is retried."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Task:
    """The operator's instructions to the init container, from its environment. `wait_seconds` 0:
    no limit. `kubectl` is the program to copy to `folder`; empty: none."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        needed = ("IPUHUB_NAMESPACE", "IPUHUB_JOB", "IPUHUB_JOB_UID")
        missing = [name for name in needed if not environment.get(name)]
        if missing:
            raise LauncherError(f"{' and '.join(missing)}: missing, although the operator sets it")
        self.namespace, self.job, self.uid = (environment[name] for name in needed)
        self.instance = _number(environment, "IPUHUB_INSTANCE", "0", int)
        self.attempt = _number(environment, "IPUHUB_ATTEMPT", "0", int)
        self.workers = _number(environment, "IPUHUB_WORKERS", "1", int)
        self.wait_seconds = _number(environment, "IPUHUB_LAUNCHER_WAIT_SECONDS", "0", float)
        self.folder = environment.get("IPUHUB_KUBECTL_FOLDER") or "/opt/kube"
        path = environment.get("PATH", os.defpath)
        self.kubectl = environment.get("IPUHUB_KUBECTL_BINARY") or _found(path)

    @property
    def worker_names(self) -> list[str]:
        """The pods that must be Ready."""
        return [f"{self.job}-worker-{number}" for number in range(self.workers)]


class Api:
    """A client of the API server with the pod's service account; one connection per request."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._host = environment.get("KUBERNETES_SERVICE_HOST", "")
        self._port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not self._host:
            raise LauncherError(
                "KUBERNETES_SERVICE_HOST: missing, although Kubernetes sets it in every pod"
            )
        folder = environment.get("IPUHUB_POD_ROOT", "") + ACCOUNT
        self._account = folder if os.path.isdir(folder) else ACCOUNT  # noqa: PTH112  # 20 ms
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            self._context.load_verify_locations(f"{self._account}/ca.crt")
        except OSError as error:
            raise LauncherError(f"no service account in {self._account}: {error}") from error

    def get(self, path: str) -> Any:
        """Return the object or list at `path`; raises NoAnswerError."""
        return _decoded(b"".join(self._ask(path, 30.0)))

    def watch(self, path: str, seconds: float) -> Iterator[Any]:
        """Yield the events at `path` until the server ends them; raises NoAnswerError."""
        rest = b""
        for part in self._ask(path, seconds):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line.strip():
                    yield _decoded(line)

    def _ask(self, path: str, seconds: float) -> Iterator[bytes]:
        """Yield the body's parts as they come; `seconds` is the longest silence."""
        try:
            with open(f"{self._account}/token", encoding="ascii") as file:  # noqa: PTH123
                token = file.read().strip()
            address = (self._host, int(self._port))
            with (
                socket.create_connection(address, seconds) as plain,
                self._context.wrap_socket(plain, server_hostname=self._host) as connection,
            ):
                head = (
                    f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
                    f"Authorization: Bearer {token}\r\nAccept: application/json\r\n"
                    "User-Agent: ipuhub-launcher\r\nConnection: close\r\n\r\n"
                )
                connection.sendall(head.encode())
                yield from _body_of(connection.makefile("rb"))
        except (OSError, ValueError) as error:
            raise NoAnswerError(str(error) or type(error).__name__) from error


def _body_of(answer: Any) -> Iterator[bytes]:
    """Yield an HTTP answer's body; raises NoAnswerError with the status of a refusal."""
    status = int([*answer.readline().split(), b"0", b"0"][1])
    is_chunked = False
    while (line := answer.readline().strip().lower()) != b"":
        is_chunked |= line.startswith(b"transfer-encoding:") and b"chunked" in line
    parts = _chunks(answer) if is_chunked else iter(answer.read, b"")
    if status == 200:
        yield from parts
        return
    body = b"".join(parts)
    try:
        message = json.loads(body).get("message")
    except (ValueError, AttributeError):
        message = ""
    raise NoAnswerError(message or f"the API server answered {status}", status)


def _chunks(answer: Any) -> Iterator[bytes]:
    while size := int(answer.readline().split(b";")[0] or b"0", 16):
        yield answer.read(size)
        answer.readline()


def _decoded(text: bytes | str, words: str = "the API server's response is not valid JSON") -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoAnswerError(f"{words}: {error}") from error


def checked(value: Any, rule: Any, path: str, words: str = BAD_POD) -> Any:
    """Return the value if each field in it has the type of its rule; raises NoAnswerError."""
    kind: Any = rule if isinstance(rule, type) else type(rule)
    if type(value) is not kind:  # to isinstance, true is an integer
        raise NoAnswerError(f"{words}: {path}")
    if isinstance(rule, dict):
        for name, inner in rule.items():
            if name in NEEDED or value.get(name) is not None:
                checked(value.get(name), inner, f"{path}.{name}", words)
    elif isinstance(rule, list):
        for number, entry in enumerate(value):
            checked(entry, rule[0], f"{path}[{number}]", words)
    return value


def awaited(workers: Sequence[str], pods: Iterable[Manifest], attempt: int) -> str:
    """Return what the launcher waits for, in a sentence; empty: all `workers` are Ready."""
    found = {
        pod["metadata"]["name"]: pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(ATTEMPT) == str(attempt)
    }
    waiting = [
        f"{name} ({_trouble(found[name])})" if name in found else f"{name} (not there yet)"
        for name in workers
        if name not in found or not _is_ready(found[name])
    ]
    if not waiting:
        return ""
    named = ", ".join(waiting[:MOST_NAMED])
    more = f" and {len(waiting) - MOST_NAMED} more" if len(waiting) > MOST_NAMED else ""
    ready = len(workers) - len(waiting)
    return f"{ready} of {len(workers)} workers are ready; waiting for {named}{more}"


def _is_ready(pod: Manifest) -> bool:
    status = pod.get("status") or {}
    conditions = {c["type"]: c.get("status") for c in status.get("conditions") or ()}
    is_up = status.get("phase") == "Running" and conditions.get("Ready") == "True"
    return is_up and not pod["metadata"].get("deletionTimestamp")


def _trouble(pod: Manifest) -> str:
    """Return why a pod is not Ready, in the words of kubelet or scheduler, else its phase."""
    status = pod.get("status") or {}
    for field in CONTAINERS:
        for container in status.get(field) or ():
            waits = (container.get("state") or {}).get("waiting") or {}
            if waits.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
                return ": ".join(waits[k] for k in ("reason", "message") if waits.get(k))
    for condition in status.get("conditions") or ():
        if condition.get("reason") == "Unschedulable":
            return f"Unschedulable: {condition.get('message') or 'no node takes it'}"
    return status.get("phase") or "Pending"


def _instances(status: Manifest) -> list[Manifest]:
    """Return each instance's status, from a condition if the CRD drops the field."""
    found = status.get("instances") or []
    for condition in () if found else status.get("conditions") or ():
        if condition["type"] == CARRIER:
            own = _decoded(condition.get("message") or "{}", BAD_STATUS)
            found = checked(own, OWN_FIELDS, CARRIER, BAD_STATUS).get("instances") or []
    return found


def closed_because(job: Manifest | None, uid: str, instance: int, attempt: int) -> str:
    """Return why the command must no longer start; empty: it may. A pod of an operator that no
    longer leads would otherwise run the command twice."""
    if job is None or job["metadata"].get("uid") != uid:
        return "the job is gone"
    if job["metadata"].get("deletionTimestamp"):
        return "the job is being deleted"
    status = checked(job.get("status") or {}, STATUS, "status", BAD_STATUS)
    state = status.get("launcherStatus")
    if state in FINISHED:
        return f"the job is {state}"
    entries = [entry for entry in _instances(status) if entry["index"] == instance]
    entry = entries[0] if entries else {"attempt": 0}
    if entry["attempt"] != attempt:
        return f"the job is at attempt {entry['attempt']}, this pod belongs to attempt {attempt}"
    if entry.get("state") == "Running":
        return f"another launcher of attempt {attempt} has already started the command"
    return ""


def deliver_kubectl(task: Task) -> None:
    """Copy kubectl to where the exec script of the job looks for it; raises LauncherError."""
    if not task.kubectl:
        raise LauncherError("this image contains no kubectl, which mpirun needs to reach workers")
    target = f"{task.folder}/{PROGRAM}"
    try:
        os.makedirs(task.folder, exist_ok=True)  # noqa: PTH103
        source = os.open(task.kubectl, os.O_RDONLY)
        copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)
        # A fifth of the copy's CPU: the file system looks for room once, not at each piece.
        os.posix_fallocate(copy, 0, os.fstat(source).st_size)
        while os.sendfile(copy, source, None, 1 << 30):
            pass
        os.fchmod(copy, 0o755)
        os.close(copy)
        os.close(source)
    except OSError as error:
        raise LauncherError(f"cannot put kubectl into {task.folder}: {error}") from error


class Launcher:
    """One run of the program; `say` is called with its progress."""

    def __init__(self, task: Task, api: Api, say: Callable[[str], None]) -> None:
        self._task, self._api, self._say = task, api, say
        self._until = time.monotonic() + task.wait_seconds if task.wait_seconds else 0.0
        self._said = self._waits_for = ""

    def run(self) -> None:
        """Return once the command may start; raises LauncherError when it must not."""
        while not self._are_workers_ready():
            pass
        self._check_gate()
        self._say(f"all {self._task.workers} workers are ready")

    def _are_workers_ready(self) -> bool:
        """Follow the workers until all are Ready, one is gone, or half a minute is over; raise
        LauncherError where the job has gone with them: its workers will never be ready."""
        task = self._task
        labels = f"graphcore.ai/ipujob-uid={task.uid},graphcore.ai/role=worker"
        path = f"/api/v1/namespaces/{task.namespace}/pods?labelSelector={labels}"
        try:
            found = checked(self._api.get(path), POD_LIST, "pods")
            pods = {pod["metadata"]["name"]: pod for pod in found.get("items") or ()}
            if self._is_all(pods):
                return True
            self._check_gate()
            seconds = self._seconds_left(WATCH_SECONDS)
            path += f"&watch=1&timeoutSeconds={max(int(seconds), 1)}"
            path += f"&resourceVersion={found['metadata']['resourceVersion']}"
            for event in self._api.watch(path, seconds):
                if checked(event, {"type": str}, "event")["type"] in {"ERROR", "DELETED"}:
                    return False
                pod = checked(event.get("object"), POD, "pod")
                pods[pod["metadata"]["name"]] = pod
                if self._is_all(pods):
                    return True
        except NoAnswerError as error:
            self._rest(error)
        return False

    def _is_all(self, pods: Mapping[str, Manifest]) -> bool:
        self._waits_for = awaited(self._task.worker_names, pods.values(), self._task.attempt)
        self._tell(self._waits_for)
        self._seconds_left(0)
        return not self._waits_for

    def _check_gate(self) -> None:
        """Wait for an answer; raise LauncherError if the command must not start any more."""
        task = self._task
        whose = (task.uid, task.instance, task.attempt)
        path = f"/apis/graphcore.ai/v1alpha1/namespaces/{task.namespace}/ipujobs/{task.job}"
        reason = None
        while reason is None:
            try:
                job = checked(self._api.get(path), JOB, "job", BAD_JOB)
                reason = closed_because(job, *whose)
            except NoAnswerError as error:
                if error.status == NOT_FOUND:
                    reason = closed_because(None, *whose)
                else:
                    self._rest(error)
        if reason:
            raise LauncherError(f"not starting the command: {reason}")

    def _rest(self, error: NoAnswerError) -> None:
        """Wait a moment before the next request; the rights may not be in effect from the start."""
        is_early = error.status in {UNAUTHORIZED, FORBIDDEN}
        self._tell(str(error))
        time.sleep(self._seconds_left(NOT_YET_SECONDS if is_early else RETRY_SECONDS))

    def _tell(self, words: str) -> None:
        if words and words != self._said:
            self._said = words
            self._say(words)

    def _seconds_left(self, most: float) -> float:
        """So many seconds or as many as are left; raises LauncherError once none is."""
        if not self._until:
            return most
        remaining = self._until - time.monotonic()
        if remaining <= 0:
            last = self._waits_for or self._said or "no answer"
            raise LauncherError(f"waited {self._task.wait_seconds:g} s: {last}")
        return min(most, remaining)


def main() -> int:
    """The program; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))  # process 1 has no default of it
    try:
        task = Task(os.environ)
        deliver_kubectl(task)
        Launcher(task, Api(os.environ), _say).run()
    except LauncherError as error:
        _say(str(error))
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"ipuhub-launcher: {line}\n")
    sys.stdout.flush()


def _found(path: str) -> str:
    for folder in path.split(os.pathsep):
        program = f"{folder or '.'}/{PROGRAM}"
        if os.access(program, os.X_OK) and not os.path.isdir(program):  # noqa: PTH112
            return program
    return ""


def _number(environment: Mapping[str, str], name: str, default: str, kind: Any) -> Any:
    text = environment.get(name) or default
    try:
        return kind(text)
    except ValueError:
        raise LauncherError(f"{name} is {text!r}: not a number") from None


if __name__ == "__main__":
    os._exit(main())  # all is said and closed; to take the interpreter apart takes a tenth longer
