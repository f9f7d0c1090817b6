"""The SQL of pods: written singly or in one batch, the same states make the same rows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from usage.pods.recorder import PodRecorder
from usage.pods.rows import JobOwner, PodRow

if TYPE_CHECKING:
    from collections.abc import Callable

T0 = datetime(2026, 10, 1, tzinfo=UTC)
ENDS = ("", "event", "deleted", "relist")


def random_row(uid: str, choose: random.Random) -> PodRow:
    """Any state of a pod, likely or not."""
    source = choose.choice(ENDS)
    estimated = source in {"deleted", "relist"} or (source == "event" and choose.random() < 0.3)
    claim = choose.choice(("namespace", "annotation", "operator"))
    text = claim + str(choose.randrange(3))
    moment = T0 + timedelta(minutes=choose.randrange(100))
    given: dict[str, Any] = dict.fromkeys(PodRow.__struct_fields__, text)
    amounts = ("cpu_millicores", "memory_bytes", "gpus", "micro_ipus", "asked_micro_ipus")
    given |= dict.fromkeys(amounts, len(text)) | {"stamp": None}
    given |= {"user_verified": choose.random() < 0.5}
    given |= {
        "uid": uid,
        "namespace": "team",
        "claim": claim,
        "instance": choose.randrange(3),
        "attempt": None,
    }
    given |= {"accelerators": {"gpu": 1}, "created_at": T0, "exit_code": choose.randrange(3)}
    given |= {"node": choose.choice(("", "n")), "scheduled_at": choose.choice((None, T0))}
    given |= {"started_at": choose.choice((None, moment)), "end_source": source}
    given |= {"finished_at": moment if source else None, "estimated": estimated}
    given |= {"uncertainty_seconds": choose.randrange(9) if estimated else 0}
    given |= {"skew_seconds": choose.randrange(3) if source else 0}
    given |= {"is_known_only": claim == "namespace" and choose.random() < 0.3}
    return PodRow(**given)


def every_other(_: Any, jobs: Any) -> dict[str, JobOwner]:
    """The job of each second text is recorded."""
    return {uid: JobOwner("team", "g", "u", user_verified=True) for uid in jobs if "1" not in uid}


def written(tables: dict[str, Any], parts: Callable[[list[PodRow]], list[list[PodRow]]]) -> Any:
    """Return the rows of 300 random histories that are written in `parts`."""
    choose = random.Random(7)  # the same histories each time
    recorder = PodRecorder(recorded=every_other)
    with psycopg.connect(**tables, row_factory=dict_row) as connection:
        cursor = connection.cursor()
        cursor.execute("DELETE FROM usage_podlifetime")
        for number in range(300):
            history = [random_row(f"uid-{number}", choose) for _ in range(choose.randrange(1, 6))]
            for part in parts(history):
                recorder.write(cursor, part, "cluster", T0)
        rows = cursor.execute("SELECT * FROM usage_podlifetime ORDER BY uid").fetchall()
    for row in rows:
        del row["id"]
    return rows


def test_one_by_one_and_all_at_once_are_the_same(tables: dict[str, Any]) -> None:
    one_by_one = written(tables, lambda history: [[row] for row in history])
    assert len(one_by_one) > 200
    assert len([row for row in one_by_one if row["stamp"]]) > 20
    assert written(tables, lambda history: [history]) == one_by_one


def test_the_same_again_writes_nothing(tables: dict[str, Any]) -> None:
    row = random_row("uid", random.Random(1))
    row.is_known_only = False
    recorder = PodRecorder()
    with psycopg.connect(**tables) as connection:
        cursor = connection.cursor()
        recorder.write(cursor, [row], "cluster", T0)
        recorder.write(cursor, [row], "cluster", T0 + timedelta(hours=1))
        assert cursor.rowcount == 0
