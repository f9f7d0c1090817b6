"""domain: the rules of an IPUJob, one module each."""
