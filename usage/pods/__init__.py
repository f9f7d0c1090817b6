"""Recording of pods: their shape, lifetimes and resources, the rows they make, the recorder."""
