"""How long rows are kept, and what is left to say of those that were purged."""
