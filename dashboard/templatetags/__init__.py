"""Template filters of all pages."""
