"""The admission webhooks of IPUJobs: they need nothing but the request itself."""
