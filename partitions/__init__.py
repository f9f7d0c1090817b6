"""The V-IPU Proxy (partitions for jobs, tracker, /stats, /query) and V-IPU itself."""
