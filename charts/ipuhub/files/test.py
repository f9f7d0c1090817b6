# ruff: noqa: INP001, S310, T201
"""The checks of `helm test`, of a release described in JSON. Exits with 1 and a sentence for each
check that failed."""

import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
WRONG = {
    "apiVersion": "graphcore.ai/v1alpha1",
    "kind": "IPUJob",
    "metadata": {"name": "helm-test"},
    "spec": {
        "jobInstances": 1,
        "ipusPerJobInstance": "none",
        "workers": {"template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}},
    },
}
# An installation without --wait, or an upgrade, may just have ended.
READY_SECONDS = 30


def ask_api(path: str, body: Json | None = None) -> tuple[int, Json]:
    request = urllib.request.Request(f"{API}{path}", method="POST" if body else "GET")
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text()}")
    request.add_header("Content-Type", "application/json")
    request.data = json.dumps(body).encode() if body else None
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    try:
        with urllib.request.urlopen(request, timeout=40, context=context) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except OSError as error:
        sys.exit(f"The API server does not answer at {API}: {error}")


def pods_by_component(release: Json) -> dict[str, list[Json]]:
    selector = urllib.parse.quote(release["selector"])
    where = f"/api/v1/namespaces/{release['namespace']}/pods?labelSelector={selector}"
    status, said = ask_api(where)
    if status != 200:
        sys.exit(f"The pods of the release cannot be listed: {said['message']}")
    found: dict[str, list[Json]] = {component: [] for component in release["ports"]}
    for pod in said["items"]:
        component = pod["metadata"]["labels"].get("app.kubernetes.io/component")
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if component in found and not ended and "deletionTimestamp" not in pod["metadata"]:
            found[component].append(pod)
    return found


def why_not_started(pod: Json) -> str:
    """Why a pod has no address, or its container does not run; empty: it runs."""
    status = pod["status"]
    for each in status.get("containerStatuses", []):
        waiting = each["state"].get("waiting")
        if waiting:
            return f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip()
    for each in status.get("conditions", []):
        if each["type"] == "PodScheduled" and each["status"] != "True":
            return each.get("message", "it has no node yet")
    return "" if status.get("podIP") else "it has no address yet"


def why_not_ready(pod: Json, port: int) -> str:
    """What is wrong with a pod, in its own words; empty: it is ready."""
    why = why_not_started(pod)
    if why:
        return why
    address = pod["status"]["podIP"]
    host = f"[{address}]" if ":" in address else address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/readyz", timeout=10) as answer:
            answer.read()
            return ""
    except urllib.error.HTTPError as error:
        return "; ".join(error.read().decode(errors="replace").split("\n")).strip("; ")
    except OSError as error:
        return f"/readyz does not answer on port {port}: {error}"


def not_ready(release: Json) -> list[str]:
    found = []
    for component, pods in pods_by_component(release).items():
        if not pods:
            events = f"kubectl get events -n {release['namespace']}"
            found.append(f"{component} is not ready: it has no pod. `{events}` says why.")
        for pod in pods:
            why = why_not_ready(pod, release["ports"][component])
            if why:
                found.append(f"{component} is not ready (pod {pod['metadata']['name']}): {why}")
    return found


def ask_components(release: Json) -> list[str]:
    end = time.monotonic() + READY_SECONDS
    while True:
        problems = not_ready(release)
        if not problems:
            print("Ready:", ", ".join(release["ports"]))
            return []
        if time.monotonic() > end:
            return problems
        time.sleep(2)


def ask_proxy(release: Json) -> list[str]:
    try:
        with urllib.request.urlopen(f"{release['proxy']}/stats", timeout=20) as answer:
            print("IPUs:", answer.read().decode())
    except OSError as error:
        return [f"The V-IPU Proxy does not answer at {release['proxy']}/stats: {error}"]
    return []


def ask_webhooks(release: Json) -> list[str]:
    namespace = release["jobs"]
    if not namespace:
        return []
    jobs = f"/apis/graphcore.ai/v1alpha1/namespaces/{namespace}/ipujobs?dryRun=All"
    status, said = ask_api(jobs, WRONG)
    if status < 300:
        return ["A wrong job is accepted: the API server does not ask the webhooks."]
    if "ipusPerJobInstance" in said["message"] and "denied the request" in said["message"]:
        print("A wrong job is refused:", said["message"])
        return []
    return [f"A wrong job is not judged by the webhooks: {status} {said['message']}"]


described = json.loads(sys.argv[1])
failures = [
    problem for check in (ask_components, ask_proxy, ask_webhooks) for problem in check(described)
]
if failures:
    sys.exit("\n".join(failures))
