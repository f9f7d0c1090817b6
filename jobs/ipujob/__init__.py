"""What an IPUJob is."""
