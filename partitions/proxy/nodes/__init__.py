"""io: the nodes of the cluster: their advertised IPUs, and their suitability for a job's pod."""
