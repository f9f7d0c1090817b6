"""The shapes of what is stored, and the documents that publish them."""
