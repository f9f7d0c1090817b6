"""io: the V-IPU Proxy's HTTP side."""
