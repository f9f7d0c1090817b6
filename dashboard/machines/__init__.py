"""One IPU-Machine or one of its IPUs: pages and API."""
