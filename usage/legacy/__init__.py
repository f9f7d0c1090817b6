"""kubectl patches for what was made before usage was recorded."""
