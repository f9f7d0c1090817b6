"""What is remembered of partitions and of capacity."""
