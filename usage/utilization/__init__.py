"""Utilization of each V-IPU controller: the state of its IPUs over time."""
