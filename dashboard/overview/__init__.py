"""The overview: the present read live, the past from Postgres."""
