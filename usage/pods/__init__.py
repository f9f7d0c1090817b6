"""Recording of pods: decoding, lifetimes, resources, rows and the recorder."""
