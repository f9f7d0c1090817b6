"""The IPU Operator: the IPUJob API, its reconciler and its admission rules."""
