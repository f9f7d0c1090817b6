"""io: asynchronous access to a Kubernetes API server; all other code goes through it.

Importing this package does not load the `kubernetes` package (a second of CPU). `load_config` loads
it, only for exec plug-ins and in-cluster credentials.
"""
