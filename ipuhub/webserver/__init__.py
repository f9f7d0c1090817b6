"""io: HTTP server of the web process: an event loop in front of a thread pool."""
