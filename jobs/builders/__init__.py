"""domain: manifests of everything the operator creates for an IPUJob."""
