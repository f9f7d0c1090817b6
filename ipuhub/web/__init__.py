"""The web process: a composition root, the one place that reads jobs and partitions together."""
