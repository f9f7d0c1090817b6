"""io: asynchronous access to a Kubernetes API server; the only code that speaks to one.

Importing this package does not load the `kubernetes` package (a second of CPU): that happens in
`load_config`, for kubeconfigs, exec plug-ins and in-cluster credentials only.
"""
