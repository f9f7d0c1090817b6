"""Keys of jobs on real nodes: a job's container reaches its own partition and no other.

docs/admin/vipu-security.md, "Keys for one partition", on the secure V-IPU of the chart.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.waiting import wait_until
from tests.realnodes import test_chart_agents as installation
from tests.realnodes.release import ROOT

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.realnodes.test_chart_agents import Site

site = installation.site
JOBS = ("mine", "other")
IMAGE = "localhost/ipuhub:0.1.0"
OWN = 'vipu get partition "$IPUOF_VIPU_API_PARTITION_ID" --ipu-configs'


@pytest.fixture(scope="module")
def keyed(site: Site) -> Site:
    """The installation with a certificate for pods, and two jobs that run on it."""
    tls = site.folder / "vipu-tls"
    shutil.copytree(tls / "user", tls / "proxy")
    command = [sys.executable, "-m", "partitions.vipu.server.main", "--tls-init", str(tls)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    files = {"pod.crt": tls / "user/tls.crt", "pod.key": tls / "user/tls.key"}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    site.kubectl("patch", "secret", "vipu-access", "-p", json.dumps({"data": data}))
    # The kubelet would renew its files within two minutes.
    site.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=vipu-proxy")
    site.until_available("vipu-proxy")
    for name in JOBS:
        site.cluster.create_anew("default", job(name))
    for name in JOBS:
        wait_until(lambda name=name: is_running(site, name), f"{name} runs")
    return site


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "command": ["sleep"], "args": ["infinity"]}
    return {
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "4",
            "workers": {"template": {"spec": {"containers": [container]}}},
        },
    }


def is_running(site: Site, name: str) -> bool:
    found = site.cluster.get("ipujob", name, "-n", "default")
    return bool((found.get("status") or {}).get("launcherStatus") == "Running")


def inside(site: Site, name: str, command: str) -> CompletedProcess[str]:
    """Run a command in the job's container, with the environment that the job's program has."""
    where = ("-n", "default", f"{name}-worker-0", "--")
    return site.cluster.try_kubectl("exec", *where, "sh", "-c", command)


def done(site: Site, name: str, command: str) -> str:
    found = inside(site, name, command)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def secrets_of(site: Site, name: str) -> list[dict[str, Any]]:
    selector = f"graphcore.ai/ipujob-name={name}"
    found = site.cluster.get("secrets", "-n", "default", "-l", selector)["items"]
    return list(found)


def test_a_container_reads_and_resets_its_own_partition(keyed: Site) -> None:
    ids = {}
    for name in JOBS:
        (gcd,) = json.loads(done(keyed, name, OWN))["gcd_configs"]
        assert len(gcd["devices"]) == 4
        ids[name] = gcd["attributes"]["partition id"]
        listed = json.loads(done(keyed, name, "vipu list partitions -o json"))
        assert [each["partition"]["id"] for each in listed] == [ids[name]]
    assert ids["mine"] != ids["other"]
    same = (
        '[ "$VIPU_CLI_API_HOST:$VIPU_CLI_API_PORT" = "$IPUOF_VIPU_API_HOST:$IPUOF_VIPU_API_PORT" ]'
    )
    done(keyed, "mine", same)
    output = done(keyed, "mine", 'vipu reset partition "$IPUOF_VIPU_API_PARTITION_ID"')
    assert output == f"reset partition ({ids['mine']}): success.\n"


def test_anothers_partition_does_not_exist_for_it_and_its_own_cannot_be_removed(
    keyed: Site,
) -> None:
    others = {each["id"] for each in keyed.admin("list", "partitions")}
    (own,) = json.loads(done(keyed, "mine", "vipu list partitions -o json"))
    (other,) = others - {own["partition"]["id"]}
    for command in (f"get partition {other} --ipu-configs", f"reset partition {other}"):
        found = inside(keyed, "mine", f"vipu {command}")
        assert found.returncode == 1
        assert f"there is no partition '{other}'" in found.stderr
    found = inside(keyed, "mine", 'vipu remove partition "$IPUOF_VIPU_API_PARTITION_ID"')
    assert found.returncode == 1
    assert "reads and resets the partition" in found.stderr
    assert {each["id"] for each in keyed.admin("list", "partitions")} == others


def test_the_operator_stores_the_key_and_cannot_read_it_and_it_goes_with_the_job(
    keyed: Site,
) -> None:
    (secret,) = secrets_of(keyed, "mine")
    assert secret["immutable"] is True
    assert [each["name"] for each in secret["metadata"]["ownerReferences"]] == ["mine"]
    deployment = json.loads(
        keyed.kubectl("get", "deployment", f"{installation.NAME}-controller-manager", "-o", "json")
    )
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    who = f"--as=system:serviceaccount:{installation.NAMESPACE}:{account}"
    may = {
        verb: keyed.cluster.try_kubectl(
            "auth", "can-i", verb, "secrets", "-n", "default", who
        ).stdout.strip()
        for verb in ("create", "get", "list", "watch", "update", "patch", "delete")
    }
    assert may == {**dict.fromkeys(may, "no"), "create": "yes"}
    keyed.cluster.kubectl("delete", "ipujob", "mine", "-n", "default", "--timeout=120s")
    wait_until(lambda: not secrets_of(keyed, "mine"), "the Secret is gone")
    assert len(secrets_of(keyed, "other")) == 1
