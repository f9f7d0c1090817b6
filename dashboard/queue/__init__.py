"""The queue page, and typical run times of jobs like those in the queue."""
