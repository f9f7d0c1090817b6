"""`manage.py make_builtin_schemas`: the committed field table and the models it comes from."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from devcluster.management.commands import make_builtin_schemas
from devcluster.schemas import builtin


def test_the_committed_table_is_what_the_models_say():
    call_command("make_builtin_schemas", "--check")


def test_a_stale_table_is_reported(tmp_path, monkeypatch):
    stale = tmp_path / "builtin_schemas.json"
    stale.write_text("{}\n")
    monkeypatch.setattr(make_builtin_schemas, "SCHEMAS_FILE", stale)
    with pytest.raises(CommandError, match="is not current"):
        call_command("make_builtin_schemas", "--check")
    call_command("make_builtin_schemas")
    assert stale.read_text() == builtin.SCHEMAS_FILE.read_text()
