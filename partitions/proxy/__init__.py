"""io: the V-IPU Proxy."""
