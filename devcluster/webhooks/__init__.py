"""Calls of admission webhooks by the API server."""
