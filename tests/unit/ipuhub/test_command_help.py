"""`--help` of every command of ours says what the command and each of its options is for."""

from __future__ import annotations

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

APPS = ("ipuhub", "jobs", "partitions", "usage", "dashboard", "devcluster")
COMMANDS = sorted(name for name, app in get_commands().items() if app in APPS)


def own_options(name: str) -> dict[str, str | None]:
    """Option -> its help, of what Django does not add to every command."""
    general = {action.dest for action in BaseCommand().create_parser("", "")._actions}
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    return {one.dest: one.help for one in parser._actions if one.dest not in general}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    assert [option for option, text in own_options(name).items() if not text] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_a_sentence_that_can_be_printed(name: str) -> None:
    command = load_command_class(get_commands()[name], name)
    assert command.help.endswith(".")
    assert command.create_parser("manage.py", name).format_help()
