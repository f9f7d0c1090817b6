"""The usage part of /api/v1/."""
