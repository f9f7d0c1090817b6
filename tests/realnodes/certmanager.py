"""cert-manager, played by what it documents: it signs Certificates and injects authorities.

cert-manager itself takes minutes to build; docs/developer/chart.md says how to try it by hand.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509

from ipuhub.certificates import (
    SERVER,
    Authority,
    issue,
    key_of,
    make_authority,
    pem_of,
    private_pem_of,
    subject_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.realnodes.kit import RealCluster

CRDS = Path(__file__).with_name("cert-manager-crds.yaml")
INJECT = "cert-manager.io/inject-ca-from"
_INJECTABLE = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


class CertManager:
    """It for one namespace: one step at a time, each by what is in the cluster."""

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    def sign(self, *, again: bool = False) -> None:
        """Write the Secret of each Certificate that has none; `again`: renew the Secrets of
        servers."""
        found = self._cluster.get("certificates.cert-manager.io", "-n", self._namespace)["items"]
        wanted = [each["spec"] for each in found]
        for spec in sorted(wanted, key=lambda spec: not spec.get("isCA")):  # issuers need theirs
            is_server = not spec.get("isCA")
            if (again and is_server) or self._secret(spec["secretName"]) is None:
                self._write(spec["secretName"], self._signed(spec))

    def inject(self) -> None:
        """Write the authority of the named Certificate into each configuration that asks for it."""
        for kind in _INJECTABLE:
            for each in self._cluster.get(kind)["items"]:
                source = (each["metadata"].get("annotations") or {}).get(INJECT)
                if source:
                    self._inject(kind, each, *source.split("/"))

    def _inject(self, kind: str, configuration: dict[str, Any], namespace: str, name: str) -> None:
        certificate = self._cluster.get("certificates.cert-manager.io", name, "-n", namespace)
        secret = self._secret(certificate["spec"]["secretName"])
        assert secret is not None
        paths = [
            f"/webhooks/{number}/clientConfig/caBundle"
            for number in range(len(configuration["webhooks"]))
        ]
        value = secret["data"]["ca.crt"]
        patch = json.dumps([{"op": "add", "path": path, "value": value} for path in paths])
        found = configuration["metadata"]["name"]
        self._cluster.kubectl("patch", kind, found, "--type=json", "-p", patch)

    def _signed(self, spec: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
        now, issuer = datetime.now(UTC), spec["issuerRef"]
        assert issuer["kind"] == "Issuer"
        found = self._cluster.get("issuers.cert-manager.io", issuer["name"], "-n", self._namespace)
        if "selfSigned" in found["spec"]:
            assert spec["isCA"] is True
            authority = make_authority(spec["commonName"], now)
            made = pem_of(authority.certificate), private_pem_of(authority.key)
        else:
            authority = self._authority(found["spec"]["ca"]["secretName"])
            names = spec["dnsNames"]
            issued = issue(authority, subject_of(names[0]), [SERVER], names, now)
            made = issued.certificate, issued.key
        yield from zip(("tls.crt", "tls.key"), made, strict=True)
        yield "ca.crt", pem_of(authority.certificate)

    def _authority(self, secret: str) -> Authority:
        found = self._secret(secret)
        assert found is not None
        pem = {key: base64.b64decode(value) for key, value in found["data"].items()}
        key = key_of(pem["tls.key"])
        assert key is not None
        return Authority(x509.load_pem_x509_certificate(pem["tls.crt"]), key)

    def _secret(self, name: str) -> dict[str, Any] | None:
        return self._cluster.find("secret", name, "-n", self._namespace)

    def _write(self, name: str, signed: Iterator[tuple[str, bytes]]) -> None:
        data = {key: base64.b64encode(pem).decode() for key, pem in signed}
        write_tls_secret(self._cluster, self._namespace, name, data)


def write_tls_secret(cluster: RealCluster, namespace: str, name: str, data: dict[str, str]) -> None:
    """Create or change a Secret of a certificate; `data` is base64."""
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": data,
    }
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))
