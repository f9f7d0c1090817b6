"""Actions on jobs: the changes that users may make, their rights, and the audit."""
