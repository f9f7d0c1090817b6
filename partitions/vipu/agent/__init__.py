"""The V-IPU agent: one for each IPU-Machine."""
