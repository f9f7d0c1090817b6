"""Users, roles and tokens in the API."""
