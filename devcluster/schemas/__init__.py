"""Schemas of the stored objects, and the documents that publish them."""
