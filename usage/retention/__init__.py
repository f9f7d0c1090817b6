"""How long rows are kept, and what pages say about purged rows."""
