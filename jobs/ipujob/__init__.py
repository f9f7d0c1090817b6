"""The IPUJob: its spec, validation, conditions, names and CRD."""
