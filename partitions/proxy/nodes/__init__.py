"""io: the nodes of the cluster: which IPUs they show, and which suit a job's pod."""
