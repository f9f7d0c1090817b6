"""io: Django's PostgreSQL backend with a limit on waiting for an unresponsive server.

A stopped server, or a network that drops packets, keeps a connection open and sends nothing. No
server timeout ends that, and no TCP timeout while the host still answers.
"""
