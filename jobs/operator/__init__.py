"""The IPU Operator."""
