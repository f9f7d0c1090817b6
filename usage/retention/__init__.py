"""Retention of rows, and notes about purged rows on pages."""
