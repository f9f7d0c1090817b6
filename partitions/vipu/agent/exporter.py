"""io: a machine's metrics for Prometheus, and their page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ipuhub.addresses import address_of
from ipuhub.process.connections import CountedSite
from ipuhub.process.health import build_runner
from ipuhub.process.metrics import Meters
from partitions.vipu.serving import ListenError, remedy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from partitions.vipu.agent.machine import IpuReading, Machine, PartitionReading

# What every scraper knows; the client library would name a newer version, which says the same here.
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Field of a reading, name, help, question.
_GAUGES: Final = (
    (
        "in_use",
        "ipuhub_ipu_in_use",
        "1: the IPU is configured for a partition.",
        "Which IPUs belong to a partition?",
    ),
    (
        "temperature_celsius",
        "ipuhub_ipu_temperature_celsius",
        "Temperature of the IPU.",
        "Does an IPU get too hot?",
    ),
    (
        "power_watts",
        "ipuhub_ipu_power_watts",
        "Power of the IPU.",
        "How much power do the IPUs draw?",
    ),
    (
        "clock_hertz",
        "ipuhub_ipu_clock_hertz",
        "Clock of the IPU.",
        "Is an IPU throttled?",
    ),
    (
        "tiles",
        "ipuhub_ipu_tiles",
        "Tiles of the IPU.",
        "Do all IPUs have the same number of tiles?",
    ),
    (
        "links",
        "ipuhub_ipu_links",
        "IPU-Links of the IPU.",
        "How many IPU-Links does an IPU have?",
    ),
    (
        "links_up",
        "ipuhub_ipu_links_up",
        "IPU-Links of the IPU that are up.",
        "Is an IPU-Link down?",
    ),
)
_COUNTERS: Final = (
    (
        "link_corrected_errors",
        "ipuhub_ipu_link_corrected_errors_total",
        "Errors of the IPU-Links that were corrected.",
        "Does an IPU-Link get worse?",
    ),
    (
        "link_uncorrected_errors",
        "ipuhub_ipu_link_uncorrected_errors_total",
        "Errors of the IPU-Links that were not corrected.",
        "Did an IPU-Link fail?",
    ),
    (
        "memory_errors",
        "ipuhub_ipu_memory_errors_total",
        "Memory errors of the IPU.",
        "Did the memory of an IPU fail?",
    ),
    (
        "host_received_bytes",
        "ipuhub_ipu_host_received_bytes_total",
        "Bytes that the IPU received from hosts.",
        "How much data do the hosts send to the IPUs?",
    ),
    (
        "host_sent_bytes",
        "ipuhub_ipu_host_sent_bytes_total",
        "Bytes that the IPU sent to hosts.",
        "How much data do the IPUs send to the hosts?",
    ),
    (
        "resets",
        "ipuhub_ipu_resets_total",
        "Resets of the IPU.",
        "Is an IPU reset again and again?",
    ),
)


# Field of a reading of a partition, name, help, question. They end with the partition.
_PARTITION_COUNTERS: Final = (
    (
        "seconds",
        "ipuhub_partition_seconds_total",
        "Time since the machine was configured for the partition.",
        "For how long has a partition held IPUs of a machine?",
    ),
    (
        "host_received_bytes",
        "ipuhub_partition_host_received_bytes_total",
        "Bytes that the partition's IPUs of the machine received from hosts.",
        "Does an application feed its IPUs?",
    ),
    (
        "host_sent_bytes",
        "ipuhub_partition_host_sent_bytes_total",
        "Bytes that the partition's IPUs of the machine sent to hosts.",
        "Does an application get results from its IPUs?",
    ),
)


class IpuMeters(Meters):
    """The metrics of the IPUs of one machine, and of the partitions on them."""

    def __init__(self) -> None:
        super().__init__()
        labels = ("agent", "ipu")
        self._gauges = [
            (field, self.gauge(name, meaning, question, *labels))
            for field, name, meaning, question in _GAUGES
        ]
        self._counters = [
            (field, self.counter(name, meaning, question, *labels))
            for field, name, meaning, question in _COUNTERS
        ]

        labels = ("agent", "partition")
        self._partition_ipus = self.gauge(
            "ipuhub_partition_ipus",
            "IPUs of the machine that belong to the partition.",
            "Which machines does a partition use?",
            *labels,
        )
        self._partition_counters = [
            (field, self.counter(name, meaning, question, *labels))
            for field, name, meaning, question in _PARTITION_COUNTERS
        ]

    def fill_partitions(self, agent: str, readings: tuple[PartitionReading, ...]) -> None:
        """Show these partitions of a machine, and no others."""
        self._partition_ipus.set_all(
            {(agent, reading.partition): reading.ipus for reading in readings}
        )
        for field, counter in self._partition_counters:
            counter.replace_all(
                {(agent, reading.partition): getattr(reading, field) for reading in readings}
            )

    def fill(self, agent: str, readings: tuple[IpuReading, ...]) -> None:
        """Show these readings of a machine."""
        for field, gauge in self._gauges:
            gauge.set_all({(agent, reading.index): getattr(reading, field) for reading in readings})
        for field, counter in self._counters:
            counter.count_up(
                {(agent, reading.index): getattr(reading, field) for reading in readings}
            )


class Exporter:
    """Serves `/metrics` of one machine; `answering` returns once the agent may answer."""

    def __init__(
        self,
        agent: str,
        machine: Machine,
        clock: Callable[[], datetime],
        answering: Callable[[], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._machine = machine
        self._clock = clock
        self._answering = answering
        self._meters = IpuMeters()
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        self._runner = build_runner(app, shutdown_seconds=1)

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; raises ListenError."""
        await self._runner.setup()
        try:
            await CountedSite(self._runner, host, port).start()
        except OSError as error:
            await self.stop()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ListenError(
                f"cannot listen on {address_of(host, port)} for metrics: {reason}; "
                + remedy(reason, "choose another --exporter-port or --host, or stop what uses it")
            ) from error
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def stop(self) -> None:
        """Serve no more."""
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        await self._answering()
        now = self._clock()
        self._meters.fill(self._agent, self._machine.metrics(now))
        self._meters.fill_partitions(self._agent, self._machine.partition_metrics(now))
        return web.Response(body=self._meters.render(), headers={"Content-Type": _CONTENT_TYPE})
