"""domain: the inventory of a simulated IPU-M2000: parts, versions and serial numbers."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from partitions.vipu.agent.machine import Inventory, IpuInventory

if TYPE_CHECKING:
    from collections.abc import Mapping

TILES: Final = 1472
CLOCK_HERTZ: Final = 1_330_000_000
DRIVER_VERSION: Final = "1.0.57"
HEXOPT: Final = "active"


def simulated_inventory(seed: str, ipus: int, ports: Mapping[int, int] | None = None) -> Inventory:
    """Return the inventory of a simulated machine; `ports` of IPUoF by device number."""
    ports = ports or {}
    return Inventory(
        platform="ipum-p2",
        board_type="M2000",
        board_serial=serial(seed),
        part_number=f"IPU-M2000-{ipus}",
        gateway_version="2.6.0",
        software_version="2.6.0",
        ipuof_version="1.10.0",
        manufacturer="Graphcore",
        discovery_mode="DM_GCDA",
        virm_version="1.18.0",
        runtime_version="2.6.0",
        hdf_version="1.0.0",
        hdf_hash=serial("hdf", "ipum-p2")[:8],
        driver_version=DRIVER_VERSION,
        ipus=tuple(
            IpuInventory(
                index,
                serial(seed, index),
                "2.6.0",
                "Mk2",
                TILES,
                CLOCK_HERTZ,
                ports.get(index, 0),
                pci=f"0000:{index + 1:02x}:00.0",
                device=f"ipu{index}",
                hexopt=HEXOPT,
            )
            for index in range(ipus)
        ),
    )


def serial(*of: object) -> str:
    """A serial number that is the same for the same words."""
    return sha256("/".join(map(str, of)).encode()).hexdigest()[:16]
