"""Containers as processes of this machine."""
