"""io: the embedded Kubernetes API and its stand-in kubelet, an instrument for demo and tests."""
