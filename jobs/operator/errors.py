"""domain: what can go wrong while a job is brought to its wanted state."""

from __future__ import annotations


class JobsError(Exception):
    """Root of this app's errors."""


class RetryableError(JobsError):
    """Worth trying again without a change from outside."""


class PermanentError(JobsError):
    """Stays wrong until somebody changes something."""


class NameConflictError(PermanentError):
    """An object of the needed name exists and belongs to something else."""
