"""Actions on jobs: what users may do, as whom, and what is recorded of it."""
