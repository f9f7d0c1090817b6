"""io: stand-in nodes: they schedule pods and simulate their lives on any API server."""
