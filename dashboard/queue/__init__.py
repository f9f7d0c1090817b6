"""The queue: its page, and how long jobs run that are like those in it."""
