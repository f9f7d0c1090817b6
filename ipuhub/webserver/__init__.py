"""io: the HTTP server of the web process: an event loop in front of a pool of threads."""
