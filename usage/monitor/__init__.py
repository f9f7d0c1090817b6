"""The monitor: it ends lifetimes of pods whose end the prober missed."""
