"""io: the last heartbeat of an IPU-Machine's agent, requested from its V-IPU controller for one
page.

It is not part of the data that all pages share, because it changes with each heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipuhub.kube.errors import ApiError, ConfigError
from partitions.connections import sources
from partitions.errors import PartitionsError
from partitions.vipu.telemetry import Heartbeat, Sensors

if TYPE_CHECKING:
    from datetime import datetime

NOT_REPORTED: Final = "not reported"
_MHZ: Final = 1e6


@dataclass(frozen=True, slots=True)
class SensorTexts:
    """One IPU's sensors as the page words them."""

    temperature: str
    power: str
    clock: str

    @property
    def is_empty(self) -> bool:
        """Return whether none is reported."""
        return {self.temperature, self.power, self.clock} == {NOT_REPORTED}


def read_heartbeat(controller: str, agent: str) -> Heartbeat:
    """Return the last heartbeat; an empty heartbeat if there is no report, or no answer."""
    try:
        found = sources()
        return found.kube.run(found.proxy.machine, controller, agent)
    except (ApiError, ConfigError, PartitionsError):
        return Heartbeat()


def heard_at(heartbeat: Heartbeat) -> datetime | None:
    """Return when, in whole seconds: pages that say the same are the same page."""
    return heartbeat.heard_at.replace(microsecond=0) if heartbeat.heard_at else None


def sensors_of(heartbeat: Heartbeat, device: int) -> Sensors:
    """Return the sensor readings of an IPU."""
    return heartbeat.sensors.get(device, Sensors())


def sensor_texts(sensors: Sensors) -> SensorTexts:
    """Return them in the words of the page."""
    hertz = sensors.clock_hertz
    return SensorTexts(
        _with_unit(sensors.temperature_celsius, "°C", 1),
        _with_unit(sensors.power_watts, "W", 0),
        _with_unit(None if hertz is None else hertz / _MHZ, "MHz", 0),
    )


def _with_unit(value: float | None, unit: str, decimals: int) -> str:
    return NOT_REPORTED if value is None else f"{value:.{decimals}f}\u00a0{unit}"
