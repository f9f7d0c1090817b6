"""Ports for servers of the tests, which several test processes choose at the same time."""

from __future__ import annotations

from collections import deque

from devcluster.demo.ports import PortClaims, choose_port

# Below the range from which the kernel takes the ports of outgoing connections.
_FIRST, _LAST = 20_000, 30_000
_KEPT_CLAIMS = 100

_claims: deque[PortClaims] = deque()
_next = _FIRST


def free_port() -> int:
    """Return a free port that no other test process has chosen.

    Its server listens a while later: until then the claim keeps the port for this process.
    """
    global _next  # noqa: PLW0603  # a port is not chosen again soon, when its server may linger
    claims = PortClaims()
    number = choose_port("a test", _next, set(), claims.take).number
    _next = number + 1 if number < _LAST else _FIRST
    _claims.append(claims)
    if len(_claims) > _KEPT_CLAIMS:
        _claims.popleft().close()
    return number
