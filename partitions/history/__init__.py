"""The record of partitions and of capacity."""
