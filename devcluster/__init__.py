"""io: the embedded Kubernetes API and its stand-in kubelet, for the demo and the tests."""
