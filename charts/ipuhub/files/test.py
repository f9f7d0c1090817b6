# ruff: noqa: INP001, S310, T201
"""The checks of `helm test`: PROXY_URL [NAMESPACE]. Exits with 1 and a message if a check fails."""

import json
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc/apis/graphcore.ai/v1alpha1/namespaces"
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


def ask_proxy(url: str) -> None:
    with urllib.request.urlopen(f"{url}/stats", timeout=20) as answer:
        print("IPUs:", answer.read().decode())


def ask_webhooks(namespace: str) -> None:
    request = urllib.request.Request(f"{API}/{namespace}/ipujobs?dryRun=All", method="POST")
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text()}")
    request.add_header("Content-Type", "application/json")
    request.data = json.dumps(WRONG).encode()
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    try:
        urllib.request.urlopen(request, timeout=40, context=context).close()
    except urllib.error.HTTPError as error:
        said = json.loads(error.read())["message"]
        if "ipusPerJobInstance" in said and "denied the request" in said:
            print("A wrong job is refused:", said)
            return
        sys.exit(f"A wrong job is not judged by the webhooks: {error.code} {said}")
    sys.exit("A wrong job is accepted: the API server does not ask the webhooks.")


ask_proxy(sys.argv[1])
if len(sys.argv) > 2:
    ask_webhooks(sys.argv[2])
