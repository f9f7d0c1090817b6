"""io: Django's backend for a PostgreSQL that may fall silent: waiting for it has an end.

A stopped server, or a network that drops packets, keeps a connection open and says nothing. No
time-out of the server ends that, and those of TCP neither while the host still answers.
"""
