"""The controller address of `vipu` and `vipu-admin`: options, environment, files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.cli.settings import SYSTEM_FILE, BadSetting, find_controller
from tests.integration.vipu.securesite import certificates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "environment", "own", "system", "want"),
    [
        ({"api-host": "flag"}, {"VIPU_CLI_API_HOST": "env"}, "own", "sys", "flag:8090"),
        ({}, {"VIPU_CLI_API_HOST": "env"}, "own", "sys", "env:8090"),
        ({}, {}, "own", "sys", "own:8090"),
        ({}, {}, "", "sys", "sys:8090"),
        ({"api-port": "1"}, {"VIPU_CLI_API_PORT": "2"}, "own", "sys", "own:1"),
        ({"api-host": "fe80::1"}, {}, "", "", "[fe80::1]:8090"),
        ({}, {"VIPU_CLI_API_HOST": "[fe80::1]"}, "", "", "[fe80::1]:8090"),
    ],
)
def test_the_nearest_setting_wins_each_by_itself(
    tmp_path: Path,
    given: dict[str, str | None],
    environment: dict[str, str],
    own: str,
    system: str,
    want: str,
) -> None:
    for name, host in ((".vipu.hcl", own), ("system.hcl", system)):
        if host:
            (tmp_path / name).write_text(f'# of a site\n\napi-host = "{host}"  // comment\n')
    assert find_controller(given, environment, tmp_path, tmp_path / "system.hcl").address == want


def test_the_file_of_the_system_is_where_users_of_vipu_look_for_it() -> None:
    assert str(SYSTEM_FILE) == "/etc/vipu/vipu-cli.hcl"


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.hcl"
    file.write_text('api-host="a"\napi-port: 8090\n')
    with pytest.raises(BadSetting, match=r"x\.hcl, line 2: write key="):
        find_controller({"config": str(file)}, {}, tmp_path, tmp_path / "none")


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ('api_host="a"', "x.hcl, line 1: write api-host, not api_host"),
        ('API-HOST="a"', "x.hcl, line 1: write api-host, not API-HOST"),
        ('api-host="a:8090"', "api-host 'a:8090': write the name or address alone, and the port"),
        ('api-host="[::1]:8090"', "api-host '[::1]:8090': write the name or address alone"),
        ('api-host="http://a"', "api-host 'http://a': write the name or address alone"),
        ('api-host="a', "x.hcl, line 1: write key="),
    ],
)
def test_what_newcomers_write_wrong_is_told_with_what_to_write(
    tmp_path: Path, line: str, want: str
) -> None:
    (tmp_path / "x.hcl").write_text(line)
    with pytest.raises(BadSetting, match=re.escape(want)):
        find_controller({"config": str(tmp_path / "x.hcl")}, {}, tmp_path, tmp_path / "none")


def test_a_file_may_have_a_byte_order_mark_other_keys_and_windows_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.hcl"
    file.write_bytes(b'\xef\xbb\xbfapi-host="a"\r\nverbose=true\r\napi-port=1\r\n')
    found = find_controller({"config": str(file)}, {}, tmp_path, tmp_path / "none")
    assert found.address == "a:1"


def test_without_a_controller_all_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="--api-host, set VIPU_CLI_API_HOST, or write"):
        find_controller({}, {}, tmp_path, tmp_path / "none")


def test_user_and_key_come_from_the_environment(tmp_path: Path) -> None:
    environment = {
        "VIPU_CLI_API_HOST": "h",
        "VIPU_CLI_API_USER_ID": "alice",
        "VIPU_CLI_API_ACCESS_KEY": "k",
        "VIPU_CLI_CA": str(tmp_path / "ca.crt"),
    }
    write_ca(tmp_path / "ca.crt")
    found = find_controller({}, environment, tmp_path, tmp_path / "none").credentials
    assert found is not None
    assert (found.user_id, found.access_key) == ("alice", "k")


def write_ca(path: Path) -> None:
    path.write_bytes((certificates(path.parent / "tls") / "ca.crt").read_bytes())
