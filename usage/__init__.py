"""Usage reporting: pod and partition lifetimes, monthly reports."""
