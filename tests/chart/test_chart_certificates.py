"""The source of the webhooks' certificate for each chart value. Needs helm, no cluster."""

from __future__ import annotations

import base64
from typing import Any

from cryptography import x509

from tests.chart.rendering import CERTIFICATE, VIPU, container, environment, named, render


def in_mode(*values: str) -> list[dict[str, Any]]:
    return render(VIPU, *(f"{CERTIFICATE}.{value}" for value in values))


def bundles(documents: list[dict[str, Any]]) -> set[str | None]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    found = [each for kind in kinds for each in named(documents, kind).values()]
    return {hook["clientConfig"].get("caBundle") for each in found for hook in each["webhooks"]}


def served_secret(documents: list[dict[str, Any]]) -> str:
    """The Secret whose files the webhooks serve."""
    deployment = named(documents, "Deployment")["gc-ipu-operator-webhook"]
    where = environment(deployment)
    assert where["IPUHUB_WEBHOOK_CERTIFICATE_PATH"] == "/etc/ipuhub/webhook/tls.crt"
    assert where["IPUHUB_WEBHOOK_KEY_PATH"] == "/etc/ipuhub/webhook/tls.key"
    assert "IPUHUB_WEBHOOK_SECRET" not in where
    mounts = {each["name"]: each["mountPath"] for each in container(deployment)["volumeMounts"]}
    assert mounts["certificate"] == "/etc/ipuhub/webhook"
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    (name,) = (each["secret"]["secretName"] for each in volumes if each["name"] == "certificate")
    return str(name)


def webhook_rights(documents: list[dict[str, Any]]) -> set[str]:
    roles = [
        each
        for each in documents
        if each["kind"] in {"Role", "ClusterRole"}
        and each["metadata"]["labels"].get("app.kubernetes.io/component") == "webhook"
    ]
    return {name for role in roles for rule in role["rules"] for name in rule["resources"]}


def test_helm_makes_a_certificate_for_the_name_that_the_api_server_asks() -> None:
    documents = in_mode("mode=helm")
    secret = named(documents, "Secret")[served_secret(documents)]
    decoded = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    leaf = x509.load_pem_x509_certificate(decoded["tls.crt"])
    authority = x509.load_pem_x509_certificate(decoded["ca.crt"])
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "gc-ipu-operator-webhook-svc.ipus.svc" in names.get_values_for_type(x509.DNSName)
    assert bundles(documents) == {secret["data"]["ca.crt"]}
    assert "gc-ipu-operator-webhook" not in named(documents, "Secret")
    assert webhook_rights(documents) == {"tokenreviews", "subjectaccessreviews"}


def test_cert_manager_renews_below_an_authority_that_stays() -> None:
    documents = in_mode("mode=certManager")
    made = named(documents, "Certificate")
    leaf, authority = made[served_secret(documents)], made["gc-ipu-operator-webhook-ca"]
    assert leaf["spec"]["issuerRef"] == {"kind": "Issuer", "name": "gc-ipu-operator-webhook-ca"}
    issuers = named(documents, "Issuer")
    assert issuers["gc-ipu-operator-webhook-ca"]["spec"] == {
        "ca": {"secretName": authority["spec"]["secretName"]}
    }
    assert authority["spec"]["isCA"] is True
    assert authority["spec"]["issuerRef"]["name"] in issuers
    assert "gc-ipu-operator-webhook-svc.ipus.svc" in leaf["spec"]["dnsNames"]
    assert bundles(documents) == {None}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for each in named(documents, kind).values():
            injected = each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
            assert injected == f"ipus/{leaf['metadata']['name']}"
    assert webhook_rights(documents) == {"tokenreviews", "subjectaccessreviews"}


def test_cert_manager_takes_an_issuer_that_is_there() -> None:
    documents = in_mode("mode=certManager", "issuer.name=corporate", "issuer.kind=ClusterIssuer")
    ((leaf,), issuers) = (named(documents, kind).values() for kind in ("Certificate", "Issuer"))
    assert leaf["spec"]["issuerRef"] == {"kind": "ClusterIssuer", "name": "corporate"}
    assert not issuers


def test_a_secret_of_the_admin_is_served_under_its_authority() -> None:
    documents = in_mode("existingSecret=mine", "caBundle=PEM")
    assert served_secret(documents) == "mine"
    assert bundles(documents) == {base64.b64encode(b"PEM").decode()}
    again = in_mode("existingSecret=mine", "caBundle=PEM", "mode=existingSecret")
    assert again == documents


def test_each_parameter_of_graphcores_certificate_jobs_is_accepted_and_changes_nothing() -> None:
    patch = "admissionWebhooks.patch"
    given = (
        f"{patch}.enabled=true",
        f"{patch}.image.repository=docker.io/jettech/kube-webhook-certgen",
        f"{patch}.image.tag=v1.3.0",
        f"{patch}.image.pullPolicy=IfNotPresent",
        f"{patch}.priorityClassName=high",
        f"{patch}.podAnnotations.a=b",
        f"{patch}.nodeSelector.a=b",
        f"{patch}.runAsUser=2000",
        f"{patch}.tolerations[0].operator=Exists",
    )
    assert render(VIPU, *given) == render(VIPU)
