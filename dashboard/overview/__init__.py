"""The overview: the present from live data, the past from PostgreSQL."""
