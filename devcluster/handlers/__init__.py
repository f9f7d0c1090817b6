"""The request handlers of the Kubernetes API."""
