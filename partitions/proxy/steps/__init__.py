"""io: the steps of a partition from its reservation to its release."""
