"""Months, ranges, windows and intervals."""
