"""Users of vipu-server and their keys."""

from __future__ import annotations

from partitions.vipu.server.users import new_key


def test_a_key_is_one_word_of_any_command_line() -> None:
    keys = {new_key() for _ in range(200)}
    assert len(keys) == 200
    assert all(key.isalnum() and len(key) == 64 for key in keys)
