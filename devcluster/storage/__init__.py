"""Objects from a request's body to the store."""
