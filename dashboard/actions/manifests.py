"""io: parses manifests of jobs that users write in YAML or JSON, and writes manifests as YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from dashboard.actions.changes import BadChangeError
from jobs.ipujob.names import API_VERSION, KIND

if TYPE_CHECKING:
    from dashboard.actions.changes import Job
    from jobs.ipujob.names import Manifest

MOST_BYTES: Final = 256 * 1024
_DEEPEST: Final = 100
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(_Base):  # type: ignore[misc]
    """Safe, without dates (Kubernetes has none in YAML), and strict about repeated keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # as PyYAML declares it
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in _Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Raise YAMLError where a key comes twice: the first value would be lost."""
        keys = [key.value for key, _ in node.value if isinstance(key.value, str)]
        twice = {key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else None
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {min(twice)!r} comes twice", node.start_mark
            )
        return super().construct_mapping(node, deep=deep)


def read_manifest(text: str, namespace: str) -> Manifest:
    """Return the single object of `text`, in `namespace` if it names none.

    Raise BadChangeError with the problem and its position.
    """
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise BadChangeError("manifest", f"is larger than {MOST_BYTES // 1024} KiB.")
    try:
        _require_plain(text)
        found = list(yaml.load_all(text, Loader=_Loader))  # a safe loader
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadChangeError("manifest", f"is not valid YAML{line}: {error.problem}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadChangeError("manifest", "is not valid YAML.") from error
    found = [each for each in found if each is not None]
    if len(found) != 1 or not isinstance(found[0], dict):
        count = len(found)
        raise BadChangeError(
            "manifest",
            f"must have one object, not {count}."
            if count != 1
            else "must be an object with apiVersion, kind, metadata and spec.",
        )
    manifest: Manifest = found[0]
    metadata = manifest.get("metadata")
    if isinstance(metadata, dict):
        metadata.setdefault("namespace", namespace)
    return manifest


def _require_plain(text: str) -> None:
    """Refuse aliases, a few of which write down as gigabytes, and what is nested without end."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.AliasEvent):
            raise BadChangeError("manifest", "has an alias (*name): write the value out.")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise BadChangeError("manifest", f"is nested deeper than {_DEEPEST} levels.")


def manifest_of(job: Job) -> dict[str, Any]:
    """Return the job without what the cluster adds, so that it can be applied again."""
    meta: dict[str, Any] = {"name": job.name, "namespace": job.namespace}
    if job.labels:
        meta["labels"] = job.labels
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": job.spec}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, as people do."""


def _as_block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _as_block)


def as_yaml(value: object) -> str:
    """Return YAML as people write it, with sorted keys as kubectl prints them: PostgreSQL keeps no
    order of the keys of a manifest, and two manifests are compared line by line."""
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, width=100, sort_keys=True)
    return text
