"""Processes that start together migrate a new database once, and say if it is a newer version's."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg

CODE = (
    "import django; django.setup(); from ipuhub.schema import migrate; "
    "print(migrate()); "
    "from jobs.models import JobRecord; print(JobRecord.objects.count())"
)


def test_of_two_starts_one_migrates_and_the_other_finds_it_done(database_url: str) -> None:
    name = "migrated_together"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name}")
        environment = {
            **os.environ,
            "DATABASE_URL": database_url.rpartition("/")[0] + f"/{name}",
            "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
            "IPUHUB_SECRET_KEY": "only for this test " * 4,
        }
        started = [
            subprocess.Popen(
                [sys.executable, "-c", CODE],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        ended = [process.communicate(timeout=240) for process in started]
        assert [process.returncode for process in started] == [0, 0], ended
        assert sorted(out for out, _ in ended) == ["False\n0\n", "True\n0\n"]
        with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as inside:
            inside.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES"
                " ('jobs', '9999_of_tomorrow', now()), ('gone', '0001_initial', now())"
            )
        output = subprocess.check_output(
            [sys.executable, "-c", CODE], env=environment, text=True, timeout=240
        )
        assert "a newer version migrated this database" in output
        assert "['jobs.9999_of_tomorrow']" in output
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
