"""io: Django's PostgreSQL backend with a limit on how long it waits for a silent server.

A stopped server, or a network that drops packets, keeps a connection open and sends nothing. No
server timeout ends that, and no TCP timeout while the host still answers.
"""
