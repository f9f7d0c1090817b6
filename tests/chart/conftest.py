"""The chart without nodes: what helm renders, and API servers that take it.

CLUSTER_BIN names the folder of helm. Without it nothing here is collected: `make test` needs none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.devcluster.conformance import servers
from tests.devcluster.conformance.kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import Iterator

collect_ignore_glob = [] if os.environ.get("CLUSTER_BIN") else ["test_*.py"]


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl on the real API server that the environment names."""
    if not servers.real_is_wanted():
        pytest.skip("no real API server: set IPUHUB_TEST_KUBECONFIG or KUBEBUILDER_ASSETS")
    with servers.start("real") as server:
        yield Kubectl(server.kubeconfig, tmp_path_factory.mktemp("kubectl"))
