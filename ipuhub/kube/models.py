"""io: the shapes of the built-in kinds, as the kubernetes package's models know them."""

from __future__ import annotations


def model_fields(model: str) -> dict[str, tuple[str, str]]:
    """Fields of a model such as V1PodSpec: JSON name to Python name and the model's word for the
    type (`str`, `list[V1Container]`, `dict(str, str)`, `V1Affinity`, `object`).

    Raises AttributeError for a model that the package does not have.
    """
    from kubernetes.client import models

    kind = getattr(models, model)
    return {
        kind.attribute_map[field]: (field, written) for field, written in kind.openapi_types.items()
    }


def required_fields(model: str) -> frozenset[str]:
    """JSON names of the fields that a model such as V1Container cannot be made without."""
    from kubernetes.client import models

    fields = getattr(models, model).model_fields
    return frozenset(
        info.serialization_alias or name for name, info in fields.items() if info.is_required()
    )
