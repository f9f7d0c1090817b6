"""domain: instants as the Kubernetes API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def to_text(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as metav1.Time is stored."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_text(moment: datetime) -> str:
    """RFC 3339 in microseconds, as metav1.MicroTime is stored."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """Aware UTC time of either form. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
