"""One IPU-Machine, or one IPU of it: its page, and its place in the API."""
