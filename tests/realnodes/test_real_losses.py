"""Jobs in real containers while parts of a node, of the cluster and of the product die."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from tests.realnodes.conftest import Jobs
    from tests.realnodes.kit import RealCluster
    from tests.realnodes.product import Product

# Ends when it is told to, by a file: how long a killed part takes to come back does not matter.
WAITING = "until [ -e /tmp/go ]; do sleep 0.1; done; echo done"


def begin(jobs: Jobs, name: str) -> str:
    """Start a job that runs until it is let go; return the uid of its launcher."""
    jobs.submit(
        name,
        workersPerJobInstance="2",
        launcher={"command": ["sh", "-c", WAITING]},
        restartPolicy={"type": "OnFailure"},
    )
    jobs.until(name, "Running")
    return str(jobs.pods(name)[f"{name}-launcher"]["metadata"]["uid"])


def let_go(jobs: Jobs, name: str) -> None:
    """End its command; the node's kubelet may be on its way back."""
    errors: list[str] = []

    def is_released() -> bool:
        done = jobs.cluster.try_kubectl(
            "-n", jobs.namespace, "exec", f"{name}-launcher", "--", "touch", "/tmp/go"
        )
        errors.append(done.stderr)
        # A kubelet that comes back may break an exec off whose command has run.
        return done.returncode == 0 or jobs.status(name).get("launcherStatus") == "Completed"

    try:
        wait_until(is_released, "exec into the launcher")
    except AssertionError as error:
        raise AssertionError(f"{error}; {len(errors)} attempts, the last: {errors[-1]}") from None
    jobs.until(name, "Completed")


@pytest.mark.parametrize("part", ["kubelet-1", "containerd-1", "kube-apiserver"])
def test_a_job_outlives_a_killed_part_of_the_cluster(
    jobs: Jobs, cluster: RealCluster, product: Product, part: str
) -> None:
    uid = begin(jobs, "steady")
    cluster.kill(part)
    wait_until(lambda: cluster.try_kubectl("get", "--raw", "/readyz").returncode == 0, "the API")
    let_go(jobs, "steady")
    assert jobs.pods("steady")["steady-launcher"]["metadata"]["uid"] == uid
    assert int(jobs.status("steady").get("restartCount", 0)) == 0
    if part == "kube-apiserver":
        product.lines.clear()  # a server that has just started denies until it has read its roles


@pytest.mark.parametrize("part", ["operator", "proxy"])
def test_a_job_outlives_a_killed_part_of_the_product(
    jobs: Jobs, product: Product, part: str
) -> None:
    uid = begin(jobs, "steady")
    product.kill(part)
    let_go(jobs, "steady")
    assert jobs.pods("steady")["steady-launcher"]["metadata"]["uid"] == uid
    assert int(jobs.status("steady").get("restartCount", 0)) == 0


def test_an_evicted_worker_begins_a_new_attempt(jobs: Jobs) -> None:
    uid = begin(jobs, "moved")
    eviction = (
        '{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": '
        f'{{"name": "moved-worker-1", "namespace": "{jobs.namespace}"}}}}'
    )
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/moved-worker-1/eviction"
    jobs.kubectl("create", "--raw", path, "-f", "-", stdin=eviction)

    def is_new() -> bool:
        launcher = jobs.pods("moved").get("moved-launcher")
        return launcher is not None and launcher["metadata"]["uid"] != uid

    wait_until(is_new, "another attempt")
    jobs.until("moved", "Running")
    let_go(jobs, "moved")
