"""io: the cluster's certificate authority, and the certificates and kubeconfigs it issues."""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING, Any, Final

import yaml
from cryptography import x509

from ipuhub import certificates
from ipuhub.certificates import CLIENT, SERVER, key_of, subject_of, write_private
from ipuhub.times import utc_now

if TYPE_CHECKING:
    from pathlib import Path

    from ipuhub.certificates import Issued

# PyYAML's own writer takes 5 ms of CPU for a certificate and a key.
_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Authority:
    """A CA that stays the same over restarts, with files in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ca_file = folder / "ca.crt"
        key_file = folder / "ca.key"
        if not (self.ca_file.exists() and key_file.exists()):
            made = certificates.make_authority("ipuhub-devcluster-ca", utc_now())
            write_private(key_file, certificates.private_pem_of(made.key))
            write_private(self.ca_file, certificates.pem_of(made.certificate))
        self.ca_pem = self.ca_file.read_bytes()
        key = key_of(key_file.read_bytes())
        if key is None:
            raise TypeError(f"{key_file} holds no elliptic-curve key")
        ca = x509.load_pem_x509_certificate(self.ca_pem)
        self._authority = certificates.Authority(ca, key)
        self._folder = folder

    def issue(self, name: str, groups: tuple[str, ...], hosts: tuple[str, ...] = ()) -> Issued:
        """Return a client certificate for a user, or with `hosts` a certificate for a server."""
        usages = [SERVER if hosts else CLIENT]
        return certificates.issue(
            self._authority, subject_of(name, groups), usages, hosts, utc_now()
        )

    def server_context(self, hosts: tuple[str, ...]) -> ssl.SSLContext:
        """Return TLS for the server; a client certificate is requested, not required."""
        issued = self.issue("kube-apiserver", (), hosts)
        path = self._folder / "server.pem"
        write_private(path, issued.key + issued.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(path)
        context.load_verify_locations(self.ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def kubeconfig(self, url: str, user: str, credentials: dict[str, str]) -> bytes:
        """Return a kubeconfig for `url` with the user's credentials."""
        cluster = {"server": url, "certificate-authority-data": encode(self.ca_pem)}
        context = {"cluster": "ipuhub", "user": user}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "ipuhub", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "ipuhub", "context": context}],
            "current-context": "ipuhub",
        }
        text: str = yaml.dump(config, Dumper=_Dumper, sort_keys=False)
        return text.encode()


def encode(data: bytes) -> str:
    """Base64, as kubeconfigs hold PEM."""
    return base64.b64encode(data).decode()
