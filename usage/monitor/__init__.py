"""The monitor: it ends lifetimes of pods that went unseen."""
