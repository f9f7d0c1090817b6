"""Notifications of jobs, controllers and months, by webhook and mail."""
