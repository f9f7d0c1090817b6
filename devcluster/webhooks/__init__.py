"""The admission webhooks that the API server asks."""
