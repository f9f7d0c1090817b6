"""domain: whether who made an IPUJob is known, or only claimed by whoever wrote the object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuthorTrust:
    """When `ipuhub.io/created-by` is the webhook's word: where one is installed (`is_on`), and
    not in `unasked` namespaces, about which the API server does not ask it."""

    is_on: bool = False
    unasked: frozenset[str] = frozenset()

    def covers(self, user: str, namespace: str) -> bool:
        """Whether `user` of a job in `namespace` is verified."""
        return self.is_on and bool(user) and namespace not in self.unasked
