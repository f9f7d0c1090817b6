"""What each request of the Kubernetes API does."""
