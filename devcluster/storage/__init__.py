"""The path of an object from a request's body to the store."""
