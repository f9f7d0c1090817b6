"""What an hour of a resource costs, since when."""
