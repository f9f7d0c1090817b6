"""The `kubernetes` package's client against the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.kinds import config_map, pod, widget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.devcluster.conformance.servers import Server


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    """An ApiClient of the kubernetes package."""
    from kubernetes import config

    made = config.new_client_from_config(str(server.kubeconfig))
    yield made
    made.close()
    made.rest_client.pool_manager.clear()


def test_it_reads_and_writes_typed_objects(client: Any, namespace: str) -> None:
    from kubernetes.client import CoreV1Api, V1ConfigMap, V1ObjectMeta

    core = CoreV1Api(client)
    body = V1ConfigMap(metadata=V1ObjectMeta(name="a"), data={"k": "v"})
    made = core.create_namespaced_config_map(namespace, body)
    assert made.metadata.creation_timestamp.tzinfo is not None
    made.data["k"] = "w"
    core.replace_namespaced_config_map("a", namespace, made)
    core.patch_namespaced_config_map("a", namespace, {"data": {"l": "x"}})
    assert core.read_namespaced_config_map("a", namespace).data == {"k": "w", "l": "x"}
    names = [item.metadata.name for item in core.list_namespaced_config_map(namespace).items]
    assert "a" in names
    core.delete_namespaced_config_map("a", namespace)
    left = core.list_namespaced_config_map(namespace, field_selector="metadata.name=a")
    assert left.items == []


def test_refusals_carry_status_and_body(client: Any, namespace: str) -> None:
    import json

    from kubernetes.client import ApiException, CoreV1Api

    with pytest.raises(ApiException) as caught:
        CoreV1Api(client).read_namespaced_pod("none", namespace)
    assert caught.value.status == 404
    assert json.loads(caught.value.body)["reason"] == "NotFound"


def test_it_makes_and_lists_pods(client: Any, pod_namespace: str) -> None:
    from kubernetes.client import CoreV1Api

    core = CoreV1Api(client)
    core.create_namespaced_pod(pod_namespace, pod("a", schedulerName="nobody"))
    found = core.list_namespaced_pod(pod_namespace, field_selector="status.phase=Pending")
    assert [item.metadata.name for item in found.items] == ["a"]
    assert found.items[0].spec.containers[0].image_pull_policy == "IfNotPresent"


def test_it_watches(client: Any, namespace: str) -> None:
    from kubernetes.client import CoreV1Api
    from kubernetes.watch import Watch

    core = CoreV1Api(client)
    core.create_namespaced_config_map(namespace, config_map("watched"))
    watch = Watch()
    for event in watch.stream(core.list_namespaced_config_map, namespace, timeout_seconds=20):
        if event["object"].metadata.name == "watched":
            assert event["type"] == "ADDED"
            watch.stop()
            return
    pytest.fail("the watch ended without the object")


def test_it_handles_custom_objects(client: Any, namespace: str, widgets: str) -> None:
    from kubernetes.client import CustomObjectsApi

    custom = CustomObjectsApi(client)
    where = (widgets, "v1", namespace, "widgets")
    custom.create_namespaced_custom_object(*where, widget(widgets, "a", count=1))
    custom.patch_namespaced_custom_object(*where, "a", {"spec": {"count": 2}})
    custom.patch_namespaced_custom_object_status(*where, "a", {"status": {"phase": "x"}})
    got = custom.get_namespaced_custom_object(*where, "a")
    assert (got["spec"]["count"], got["status"]) == (2, {"phase": "x"})
    custom.delete_namespaced_custom_object(*where, "a")
    assert custom.list_namespaced_custom_object(*where)["items"] == []


def test_the_dynamic_client_discovers(server: Server, client: Any, namespace: str) -> None:
    from kubernetes.dynamic import DynamicClient

    maps = DynamicClient(client).resources.get(api_version="v1", kind="ConfigMap")
    maps.create(config_map("a", {"k": "v"}), namespace=namespace)
    assert maps.get("a", namespace).data.to_dict() == {"k": "v"}


def test_it_requests_and_reviews_tokens(client: Any, namespace: str) -> None:
    from kubernetes.client import (
        AuthenticationV1Api,
        AuthenticationV1TokenRequest,
        CoreV1Api,
        V1ObjectMeta,
        V1ServiceAccount,
        V1TokenRequestSpec,
        V1TokenReview,
        V1TokenReviewSpec,
    )

    core = CoreV1Api(client)
    account = V1ServiceAccount(metadata=V1ObjectMeta(name="robot"))
    core.create_namespaced_service_account(namespace, account)
    request = AuthenticationV1TokenRequest(spec=V1TokenRequestSpec(audiences=["proxy"]))
    token = core.create_namespaced_service_account_token("robot", namespace, request).status.token
    spec = V1TokenReviewSpec(token=token, audiences=["proxy"])
    status = AuthenticationV1Api(client).create_token_review(V1TokenReview(spec=spec)).status
    assert status.authenticated
    assert status.user.username == f"system:serviceaccount:{namespace}:robot"
