"""The record of IPUJobs."""
