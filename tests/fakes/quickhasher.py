"""Django's own password hash with one round, for users of tests that are not about hashing."""

from __future__ import annotations

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class OneRoundHasher(PBKDF2PasswordHasher):
    """Writes what any process of the product verifies: the rounds stand in the hash."""

    iterations = 1
