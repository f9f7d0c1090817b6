"""What `kubectl get` prints."""
