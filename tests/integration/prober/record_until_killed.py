"""A prober of pods that starts quickly: `python -m ... <server> <conninfo>`; the test kills it."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from psycopg.conninfo import conninfo_to_dict

from ipuhub.kube.client import KubeClient
from ipuhub.kube.credentials import ClusterConfig
from ipuhub.process.health import Health
from ipuhub.recording.recording import Recording, RecordingOptions
from usage.pods.recorder import PodRecorder


async def main(server: str, database: str) -> None:
    """Record until killed."""
    client = KubeClient(ClusterConfig(server))
    options = RecordingOptions(batch_events=50, batch_seconds=0.02)
    arguments = {**conninfo_to_dict(database), "options": "-c timezone=UTC"}
    recording = Recording(
        client, PodRecorder(), arguments, Health(), lambda: datetime.now(UTC), options
    )
    await recording.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
