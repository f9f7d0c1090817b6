"""Tasks of an administrator of the demo in a terminal, a browser and the API."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urljoin

from tests.e2e.running_demo import ROOT
from tests.fakes.forked import answer_of
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.e2e.running_demo import RunningDemo

    Ask: TypeAlias = Callable[[str], Any]


def vipu_admin(demo: RunningDemo, *arguments: str, at: str = "V-IPU admin", code: int = 0) -> str:
    """Run `vipu-admin` at one of the controllers; what it writes, or its errors with a `code`."""
    port = str(demo.ports[at])
    command = ("-m", "partitions.vipu.cli.admin", *arguments, "--api-port", port)
    done = answer_of(command, ROOT, {**os.environ, "VIPU_CLI_API_HOST": "localhost"})
    assert done.code == code, done.out + done.err
    return done.err if code else done.out


def submit_job(demo: RunningDemo, name: str, ipus: int, **spec: Any) -> None:
    container = {"name": "main", "image": "example.com/main:1"}
    workers = {"template": {"spec": {"containers": [container]}}}
    shape = {"jobInstances": 1, "ipusPerJobInstance": str(ipus), "workers": workers}
    job = {
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**shape, **spec},
    }
    demo.kubectl("create", "-f", "-", stdin=json.dumps(job))


def describe_job(demo: RunningDemo, name: str) -> str:
    return demo.kubectl("describe", "ipujob", name)


def api_reader(demo: RunningDemo) -> Ask:
    """ask(path) -> what the dashboard's API answers an administrator."""
    made = demo.manage("make_api_token", "admin", "--dir", str(demo.directory), "--scopes", "read")
    token = next(word for word in made.split() if word.startswith("ipuhub_"))

    def ask(path: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{demo.dashboard}/api/v1/{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    return ask


def wait_for_words(page: Page, path: str, *wanted: str) -> None:
    """Load the page again until it shows these words, be it in the titles of a map."""

    def has_words() -> bool:
        page.goto(urljoin(page.url, path))
        return all(words in page.content() for words in wanted)

    wait_until(has_words, f"{path} says {wanted}")
