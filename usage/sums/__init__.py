"""Sums of lifetimes by any dimensions: the SQL, and the rollups that make it fast."""
