"""The part of /api/v1/ that belongs to usage."""
