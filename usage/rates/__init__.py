"""Prices of resources and what they make of usage."""
