"""The tests' servers keep their ports while they are stopped."""

from __future__ import annotations

import socket

import pytest

from tests.fakes.heldport import HeldPort


def test_a_held_port_is_nobody_elses_and_a_server_may_come_and_go_on_it() -> None:
    held = HeldPort()
    try:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", held.number))
            with pytest.raises(OSError, match="in use"), socket.socket() as other:
                other.bind(("127.0.0.1", held.number))
            with socket.create_server(("127.0.0.1", held.number)):
                socket.create_connection(("127.0.0.1", held.number)).close()
    finally:
        held.close()
