"""The pages and API calls that join jobs, partitions and usage."""
