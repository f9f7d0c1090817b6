"""io: finds the cluster and its credentials, as kubectl and in-cluster clients do.

Kubeconfig files are merged as kubectl merges them: of each entry the first counts. They are parsed
here because the `kubernetes` package takes half a second of CPU to load and every process reads a
kubeconfig at its start. That package is used for exec plug-ins and in-cluster credentials.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ipuhub.kube.credentials import (
    ClusterConfig,
    Credentials,
    ExecCredentials,
    FileCredentials,
    StaticCredentials,
    Trust,
)
from ipuhub.kube.errors import ConfigError
from ipuhub.times import utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipuhub.kube.credentials import CredentialSource

__all__ = ["ClusterConfig", "ConfigError", "Trust", "load_config"]


def load_config(kubeconfig: str = "", context: str = "") -> ClusterConfig:
    """Return the cluster of `kubeconfig`, else of KUBECONFIG, of the pod, or of ~/.kube/config.

    `context` chooses a context of a kubeconfig; empty means its current context.
    Raises ConfigError with a sentence that says what to do.
    """

    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if named:
        return read_kubeconfig(named, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return read_in_cluster()
    home = Path("~/.kube/config").expanduser()
    if home.is_file():
        return read_kubeconfig(str(home), context)
    raise ConfigError(
        "No cluster is configured: set KUBECONFIG to a kubeconfig file, or run inside a pod with a "
        "service account."
    )


_KINDS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One cluster, context or user; `folder` is what its relative paths start from."""

    value: Mapping[str, Any]
    folder: Path


@dataclass(slots=True)
class Kubeconfig:
    """The merged contents of one or several files."""

    paths: str
    current_context: str = ""
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def find(self, kind: str, name: object) -> Entry | None:
        """The entry `name` of `kind` (clusters, contexts, users), or None."""
        return self.entries.get((kind, str(name)))

    def get(self, kind: str, name: object) -> Entry:
        """The entry `name` of `kind`. Raises ConfigError when there is none."""
        found = self.find(kind, name)
        if found is None:
            raise _unusable(self.paths, f"there is no {name!r} in its {kind}")
        return found


def read_files(paths: str) -> Kubeconfig:
    """Read `paths` (one file, or several joined by a colon); missing files are left out.

    Raises ConfigError when none exists, or a file cannot be read or is no kubeconfig.
    """
    merged = Kubeconfig(paths)
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    existing = [path for path in files if path.exists()]
    if not existing:
        raise ConfigError(
            f"Kubeconfig {paths} does not exist. Set KUBECONFIG to the file of your cluster."
        )
    for path in existing:
        _add(merged, path)
    return merged


def _add(merged: Kubeconfig, path: Path) -> None:
    content = _content(path)
    merged.current_context = merged.current_context or str(content.get("current-context") or "")
    folder = path.resolve().parent
    for kind, key in _KINDS.items():
        listed = content.get(kind) or []
        if not isinstance(listed, list):
            raise _unusable(path, f"{kind} is not a list")
        for item in listed:
            if not isinstance(item, dict) or "name" not in item:
                raise _unusable(path, f"an entry of {kind} has no name")
            value = item.get(key) or {}
            if not isinstance(value, dict):
                raise _unusable(path, f"{key} of {item['name']!r} is not a mapping")
            merged.entries.setdefault((kind, str(item["name"])), Entry(value, folder))


def _content(path: Path) -> Mapping[str, Any]:
    import yaml  # a pod's own credentials need none

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  # a safe loader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unusable(path, str(error)) from error
    if content is None:
        raise _unusable(path, "the file is empty")
    if not isinstance(content, dict):
        raise _unusable(path, "it is not a mapping with clusters, contexts and users")
    return content


def _unusable(paths: object, reason: str) -> ConfigError:
    return ConfigError(f"Kubeconfig {paths} cannot be used: {reason}.")


ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def read_kubeconfig(paths: str, context: str) -> ClusterConfig:
    """Read `paths` (one file, or several joined by a colon) and take `context` or the current
    context.

    Raises ConfigError.
    """
    merged = read_files(paths)
    entry = merged.get("contexts", context or merged.current_context).value
    cluster = merged.get("clusters", entry.get("cluster"))
    user = merged.find("users", entry.get("user")) or Entry({}, Path())
    try:
        return ClusterConfig(
            _server_of(cluster.value, paths),
            entry.get("namespace") or "default",
            trust=_trust_of(cluster.value, cluster.folder),
            source=_source_of(user.value, user.folder, cluster.value),
            acts_as=str(user.value.get("as") or ""),
        )
    except (OSError, UnicodeDecodeError, AttributeError, TypeError) as error:
        # The last two: an entry that is a list or a number where text belongs.
        raise ConfigError(f"Kubeconfig {paths} cannot be used: {error}.") from error


def read_in_cluster() -> ClusterConfig:
    """The service account that Kubernetes mounts into a pod; its token is re-read as it rotates.

    Raises ConfigError outside a pod.
    """
    from kubernetes.client import Configuration

    package = _package()
    found: Any = Configuration()
    try:
        package.load_incluster_config(client_configuration=found, try_refresh_token=False)
        namespace = ACCOUNT_FOLDER / "namespace"
        return ClusterConfig(
            found.host,
            namespace.read_text().strip() if namespace.is_file() else "default",
            trust=Trust(authorities=Path(found.ssl_ca_cert).read_text()),
            source=FileCredentials(token=str(ACCOUNT_FOLDER / "token")),
        )
    except (package.ConfigException, OSError) as error:
        raise ConfigError(f"The pod's service account cannot be used: {error}.") from error


def _package() -> Any:
    """The `kubernetes` package's configuration module; untyped, and slow to load."""
    import kubernetes.config

    return kubernetes.config


def _server_of(cluster: Mapping[str, Any], paths: str) -> str:
    server = cluster.get("server")
    if not server:
        raise ConfigError(f"Kubeconfig {paths} does not name a server for its cluster.")
    return str(server)


def _trust_of(cluster: Mapping[str, Any], folder: Path) -> Trust:
    server = str(cluster.get("server"))
    return Trust(
        authorities=_material(cluster, "certificate-authority", folder).decode(),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or _environment_proxy(server)),
    )


def _environment_proxy(server: str) -> str:
    """HTTPS_PROXY and NO_PROXY as kubectl reads them: never for this machine."""
    url = urlsplit(server)
    host = url.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return ""
    return getproxies().get(url.scheme, "")


def _material(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    """PEM given inline as base64 (`<key>-data`, preferred) or as a file (`<key>`), or nothing."""
    inline = entry.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode("".join(str(inline).split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(
                f"{key}-data in the kubeconfig is not valid base64: {error}."
            ) from error
    path = entry.get(key)
    return (folder / path).read_bytes() if path else b""


def _source_of(
    user: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any]
) -> CredentialSource:
    if "exec" in user:
        return ExecCredentials(_PlugIn(user["exec"], folder, cluster), utc_now)
    if "auth-provider" in user:
        name = (user["auth-provider"] or {}).get("name", "")
        raise ConfigError(
            f"auth-provider {name!r} was removed from Kubernetes clients in 1.26. "
            "Use the exec plug-in of your provider (kubectl oidc-login, gke-gcloud-auth-plugin)."
        )
    if user.get("tokenFile") and not user.get("token"):
        return FileCredentials(token=str(folder / user["tokenFile"]))
    certificate, key = user.get("client-certificate"), user.get("client-key")
    inline = any(user.get(name) for name in ("client-certificate-data", "token"))
    if certificate and key and not inline:
        return FileCredentials(certificate=str(folder / certificate), key=str(folder / key))
    return StaticCredentials(
        Credentials(
            _authorization_of(user),
            _material(user, "client-certificate", folder),
            _material(user, "client-key", folder),
        )
    )


def _authorization_of(user: Mapping[str, Any]) -> str:
    if user.get("token"):
        return f"Bearer {user['token']}"
    if user.get("username") and user.get("password"):
        pair = f"{user['username']}:{user['password']}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    return ""


class _PlugIn:
    """Runs an exec plug-in through the package; its failures become sentences."""

    def __init__(self, spec: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any]) -> None:
        self._spec, self._cluster = dict(spec), dict(cluster)
        self._folder = str(folder)

    def __call__(self) -> Mapping[str, Any]:
        package = _package()
        command = self._spec.get("command")
        hint = self._spec.get("installHint") or "Is it installed and on the PATH?"
        node = package.kube_config.ConfigNode
        try:
            spec, cluster = node("exec", self._spec), node("cluster", self._cluster)
            provider = package.exec_provider.ExecProvider(spec, self._folder, cluster)
            status: Mapping[str, Any] = provider.run()
        except package.ConfigException as error:
            raise ConfigError(f"The exec plug-in {command} failed: {error}.") from error
        except OSError as error:
            raise ConfigError(
                f"The exec plug-in {command} does not run: {error}. {hint}"
            ) from error
        return status
