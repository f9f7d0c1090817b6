"""The pages of one job, and its API. A composition root: joins jobs, pods and partitions."""
