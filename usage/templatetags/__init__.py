"""Template filters of the usage pages."""
