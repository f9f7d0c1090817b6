"""domain: the string formats of OpenAPI that an API server checks, and quantities."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import ipaddress
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_DURATION = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)([\d.]+(ns|us|µs|ms|s|m|h))*|0")
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?")


def is_format(name: str, value: str) -> bool:
    """Whether `value` has the format; a format that is not checked is always had."""
    check = _CHECKS.get(name)
    return check is None or check(value)


def is_quantity(value: str) -> bool:
    """Whether `value` is a Kubernetes quantity, `500m`, `1Gi`, `2e3`."""
    return _QUANTITY.fullmatch(value) is not None


def _is_date_time(value: str) -> bool:
    match = _DATE_TIME.fullmatch(value)
    return match is not None and _parses(lambda: dt.datetime.fromisoformat(value[:19]))


def _is_base64(value: str) -> bool:
    return _parses(lambda: base64.b64decode(value.replace("\n", ""), validate=True))


def _parses(parse: Callable[[], object]) -> bool:
    try:
        parse()
    except (ValueError, binascii.Error):
        return False
    return True


_CHECKS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "date-time": _is_date_time,
        "date": lambda value: _parses(lambda: dt.date.fromisoformat(value)),
        "byte": _is_base64,
        "ipv4": lambda value: _parses(lambda: ipaddress.IPv4Address(value)),
        "ipv6": lambda value: _parses(lambda: ipaddress.IPv6Address(value)),
        "cidr": lambda value: (
            "/" in value and _parses(lambda: ipaddress.ip_network(value, strict=False))
        ),
        "uuid": lambda value: _UUID.fullmatch(value) is not None,
        "duration": lambda value: _DURATION.fullmatch(value) is not None,
    }
)
