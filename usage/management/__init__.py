"""Management commands: the composition roots of this app."""
