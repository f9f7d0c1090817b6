"""The admission webhooks of IPUJobs; they need only the request."""
