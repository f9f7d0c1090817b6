"""io: the folders of a pod on this machine: its volumes, and the contents of referenced ConfigMaps
and Secrets.

Also the environment of a container: variables, references, expansion.
"""

from __future__ import annotations

import base64
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipuhub.kube.errors import NotFound
from ipuhub.kube.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

if TYPE_CHECKING:
    Lookup = Callable[[str, str], Mapping[str, str] | None]
    """(kind, name) of a ConfigMap or Secret of the pod's namespace -> its data, None: not there."""
_REFERENCE: Final = re.compile(r"\$(\$|\(([^()]+)\))")
_LONGEST_HOST_NAME: Final = 63
_SOURCES: Final = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}
_FROM: Final = {"configMapRef": "ConfigMap", "secretRef": "Secret"}


class MissingError(Exception):
    """The container cannot start yet: something that its pod names is not there."""


def build_env(
    pod: Mapping[str, Any], container: Mapping[str, Any], lookup: Lookup, ips: Mapping[str, str]
) -> dict[str, str]:
    """The container's variables. Raises MissingError."""
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for name, kind in _FROM.items():
            if name in source:
                data = _data(kind, source[name], lookup) or {}
                prefix = source.get("prefix") or ""
                found |= {f"{prefix}{key}": value for key, value in data.items()}
    for variable in container.get("env") or ():
        value = _value(pod, variable, lookup, ips)
        if value is not None:
            found[variable["name"]] = expand(value, found)
    return found


def host_name(pod: Mapping[str, Any]) -> str:
    """The host name that its containers see; cut as kubelets cut it."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:_LONGEST_HOST_NAME].rstrip("-.")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME); an unknown name stays, $$ is a dollar."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return _REFERENCE.sub(replaced, text)


def field_of(pod: Mapping[str, Any], path: str, ips: Mapping[str, str]) -> str:
    """The value of a downward API field (metadata.labels['x'], status.podIP)."""
    if path in ips:
        return ips[path]
    match = re.fullmatch(r"metadata\.(labels|annotations)(?:\['([^']+)'\])?", path)
    if match:
        values: Mapping[str, str] = pod["metadata"].get(match[1]) or {}
        if match[2]:
            return values.get(match[2], "")
        return "".join(f'{key}="{value}"\n' for key, value in sorted(values.items()))
    current: Any = pod
    for part in path.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return "" if current is None else str(current)


def decode_secret(data: Mapping[str, str]) -> dict[str, str]:
    """The texts of a Secret."""
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _value(
    pod: Mapping[str, Any], variable: Mapping[str, Any], lookup: Lookup, ips: Mapping[str, str]
) -> str | None:
    source = variable.get("valueFrom")
    if not source:
        return str(variable.get("value") or "")
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"], ips)
    for name, kind in _SOURCES.items():
        if name in source:
            reference = source[name]
            data = _data(kind, reference, lookup)
            if data is not None and reference["key"] in data:
                return data[reference["key"]]
            if reference.get("optional"):
                return None
            raise MissingError(
                f"couldn't find key {reference['key']} in {kind} {reference.get('name')}"
            )
    raise MissingError(f"env {variable['name']}: process mode has no {', '.join(source)}")


def _data(kind: str, reference: Mapping[str, Any], lookup: Lookup) -> Mapping[str, str] | None:
    data = lookup(kind, reference.get("name", ""))
    if data is None and not reference.get("optional"):
        raise MissingError(f'{kind.lower()} "{reference.get("name")}" not found')
    return data


ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCOUNT: Final = "serviceaccount-token"
_TOKEN_SECONDS: Final = 24 * 3600
_RESOURCES: Final = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}


@dataclass
class PodFiles:
    """One pod's folder, filled by `prepare`; `ips` are its addresses as downward fields."""

    client: KubeClient
    folder: Path
    pod: Manifest
    ips: Mapping[str, str]
    _texts: dict[tuple[str, str], dict[str, str] | None] = field(default_factory=dict)

    async def prepare(self) -> None:
        """Read what the pod refers to and write its volumes. Raises MissingError, ApiError."""
        await self._read_references()
        for volume in self.pod["spec"].get("volumes") or ():
            await self._write_volume(volume)
        if self.pod["spec"].get("automountServiceAccountToken") is not False:
            await self._write_account(self.folder / "volumes" / _ACCOUNT)
        (self.folder / "work").mkdir(parents=True, exist_ok=True)

    def show(self, pod: Manifest) -> None:
        """Rewrite the volumes with the pod's own fields, if they may have changed."""
        before, self.pod = self.pod["metadata"], pod
        if any(before.get(part) != pod["metadata"].get(part) for part in ("labels", "annotations")):
            for volume in pod["spec"].get("volumes") or ():
                for source in (volume.get("projected") or {}).get("sources") or [volume]:
                    self._write_fields(self._source(volume), source)

    def look_up(self, kind: str, name: str) -> dict[str, str] | None:
        """The texts of a ConfigMap or Secret that the environment names."""
        return self._texts.get((kind, name))

    def mounts(self, container: Mapping[str, Any]) -> list[tuple[str, str]]:
        """(folder or file on this machine, mount path) of a container, parents first."""
        paths = {v["name"]: self._source(v) for v in self.pod["spec"].get("volumes") or ()}
        found = [
            (str(paths[m["name"]] / (m.get("subPath") or "")).rstrip("/"), m["mountPath"])
            for m in container.get("volumeMounts") or ()
            if m["name"] in paths
        ]
        account = self.folder / "volumes" / _ACCOUNT
        if account.is_dir() and ACCOUNT_PATH not in [at for _, at in found]:
            found.append((str(account), ACCOUNT_PATH))
        return sorted(found, key=lambda mount: mount[1])

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _source(self, volume: Mapping[str, Any]) -> Path:
        if "hostPath" in volume:
            return Path(str(volume["hostPath"]["path"]))
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            namespace = str(self.pod["metadata"]["namespace"])
            return self.folder.parent.parent / "claims" / namespace / str(claim["claimName"])
        return self.folder / "volumes" / str(volume["name"])

    async def _read_references(self) -> None:
        for container in self.containers():
            for source in container.get("envFrom") or ():
                for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                    if key in source:
                        await self._text(kind, source[key]["name"])
            for variable in container.get("env") or ():
                chosen = variable.get("valueFrom") or {}
                for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                    if key in chosen:
                        await self._text(kind, chosen[key]["name"])

    def containers(self) -> list[Mapping[str, Any]]:
        """All containers, init containers first."""
        spec = self.pod["spec"]
        return [*(spec.get("initContainers") or ()), *spec["containers"]]

    async def _write_volume(self, volume: Mapping[str, Any]) -> None:
        folder = self._source(volume)
        if "hostPath" in volume:
            if not folder.exists():
                raise MissingError(f"hostPath {folder} is not on this machine")
            return
        folder.mkdir(parents=True, exist_ok=True)
        sources = (volume.get("projected") or {}).get("sources") or [volume]
        for source in sources:
            await self._write_source(folder, source)

    async def _write_source(self, folder: Path, source: Mapping[str, Any]) -> None:
        for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
            if key in source:
                chosen = source[key]
                name = chosen.get("name") or chosen.get("secretName") or ""
                texts = await self._text(kind, name)
                if texts is None and not chosen.get("optional"):
                    raise MissingError(f'{kind.lower()} "{name}" not found')
                self._write_texts(folder, chosen, texts or {})
        self._write_fields(folder, source)
        token = source.get("serviceAccountToken")
        if token is not None:
            text = await self._token(token.get("audience"))
            _write(folder / token["path"], text, 0o600)

    def _write_fields(self, folder: Path, source: Mapping[str, Any]) -> None:
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            path = (item.get("fieldRef") or {}).get("fieldPath", "")
            _write(folder / item["path"], field_of(self.pod, path, self.ips))

    def _write_texts(
        self, folder: Path, chosen: Mapping[str, Any], texts: Mapping[str, str]
    ) -> None:
        default = chosen.get("defaultMode", 0o644)
        items = chosen.get("items") or [{"key": key, "path": key} for key in texts]
        for item in items:
            if item["key"] not in texts and not chosen.get("optional"):
                raise MissingError(f"references non-existent config key: {item['key']}")
            if item["key"] in texts:
                _write(folder / item["path"], texts[item["key"]], item.get("mode", default))

    async def _write_account(self, folder: Path) -> None:
        namespace = self.pod["metadata"]["namespace"]
        trusted = await self._text("ConfigMap", "kube-root-ca.crt") or {}
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "token", await self._token(None), 0o600)
        _write(folder / "ca.crt", trusted.get("ca.crt", ""))
        _write(folder / "namespace", namespace)

    async def _token(self, audience: str | None) -> str:
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        bound = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": _TOKEN_SECONDS,
                "audiences": [audience] if audience else [],
                "boundObjectRef": bound,
            },
        }
        account = spec.get("serviceAccountName") or "default"
        path = SERVICE_ACCOUNTS.path(metadata["namespace"], account, "token")
        answer = await self.client.request("POST", path, body=body)
        return str(answer["status"]["token"])

    async def _text(self, kind: str, name: str) -> dict[str, str] | None:
        if (kind, name) not in self._texts:
            try:
                namespace = self.pod["metadata"]["namespace"]
                found = await self.client.get(_RESOURCES[kind], name, namespace)
            except NotFound:
                return None
            data = dict(found.get("data") or {})
            binary = found.get("binaryData") or {}
            texts = decode_secret(data) if kind == "Secret" else data
            texts |= {
                key: base64.b64decode(value).decode(errors="surrogateescape")
                for key, value in binary.items()
            }
            self._texts[kind, name] = texts
        return self._texts[kind, name]


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(text.encode(errors="surrogateescape"))
    path.chmod(mode)
