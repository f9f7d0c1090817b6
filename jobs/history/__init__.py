"""What is remembered of IPUJobs."""
