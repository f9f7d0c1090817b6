"""domain: the last heartbeat of an IPU-Machine's agent, as attributes of its IPUs and back.

A V-IPU controller reports it only for the machines that a request names: it changes with each
heartbeat, and the attributes of a whole fleet are read again whenever they change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HEARD_ATTRIBUTE: Final = "agent heard at"
TEMPERATURE_ATTRIBUTE: Final = "temperature celsius"
POWER_ATTRIBUTE: Final = "power watts"
CLOCK_NOW_ATTRIBUTE: Final = "clock now hertz"


@dataclass(frozen=True, slots=True)
class Sensors:
    """Readings of one IPU's sensors; None: not reported."""

    temperature_celsius: float | None = None
    power_watts: float | None = None
    clock_hertz: float | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The time of an agent's last answer, and the sensors of its IPUs by device number.

    `heard_at` None: not reported, as by controllers of other makers.
    """

    heard_at: datetime | None = None
    sensors: Mapping[int, Sensors] = field(default_factory=dict)


_NAMES: Final = (
    (TEMPERATURE_ATTRIBUTE, "temperature_celsius", "temperatureCelsius"),
    (POWER_ATTRIBUTE, "power_watts", "powerWatts"),
    (CLOCK_NOW_ATTRIBUTE, "clock_hertz", "clockHertz"),
)


def heartbeat_attributes(heartbeat: Heartbeat, index: int) -> dict[str, str]:
    """Return what one IPU says of the last heartbeat."""
    if heartbeat.heard_at is None:
        return {}
    sensors = heartbeat.sensors.get(index, Sensors())
    readings = ((name, getattr(sensors, field)) for name, field, _ in _NAMES)
    numbers = {name: f"{value:.10g}" for name, value in readings if value is not None}
    return {HEARD_ATTRIBUTE: heartbeat.heard_at.isoformat(), **numbers}


def heartbeat_from_attributes(ipus: Mapping[int, Mapping[str, str]]) -> Heartbeat:
    """Return the heartbeat in the attributes of a machine's IPUs, without validation."""
    heard = [time for values in ipus.values() if (time := _time(values.get(HEARD_ATTRIBUTE, "")))]
    sensors = {
        index: Sensors(**{field: _number(values.get(name, "")) for name, field, _ in _NAMES})
        for index, values in ipus.items()
    }
    return Heartbeat(max(heard, default=None), sensors)


def heartbeat_to_json(heartbeat: Heartbeat) -> dict[str, Any]:
    """Return it as `/v1/fleet/machine` has it; null: not reported."""
    return {
        "heardAt": heartbeat.heard_at.isoformat() if heartbeat.heard_at else None,
        "ipus": [
            {"device": index} | {name: getattr(sensors, field) for _, field, name in _NAMES}
            for index, sensors in sorted(heartbeat.sensors.items())
        ],
    }


def heartbeat_from_json(found: Mapping[str, Any]) -> Heartbeat:
    """Return the inverse of `heartbeat_to_json`. Raises KeyError, TypeError and ValueError."""
    heard = found["heardAt"]
    return Heartbeat(
        datetime.fromisoformat(heard) if heard else None,
        {
            int(ipu["device"]): Sensors(**{field: ipu[name] for _, field, name in _NAMES})
            for ipu in found["ipus"]
        },
    )


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
