"""domain: completion of commands and options for bash and zsh, out of the parser itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELLS: Final = ("bash", "zsh")
_BASH: Final = """_{name}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} path= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ $word == -* ]] || path="$path $word"
  done
  case "${{path# }}" in
{cases}
  esac
}}
complete -F _{name} {name}"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell; load it with `source <(vipu completion bash)`."""
    # The longest path first: what comes after a name completes as what comes before it.
    found = sorted(_words(parser, ""), key=lambda each: -len(each[0]))
    cases = "\n".join(
        f"    {_pattern(path)}) COMPREPLY=($(compgen -W '{words}' -- \"$cur\")) ;;"
        for path, words in found
    )
    script = _BASH.format(name=parser.prog, cases=cases)
    return script if shell == "bash" else _ZSH + script


def commands_of(
    parser: argparse.ArgumentParser, path: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command with its path, such as `list partitions`, also by its other names."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, inner in action.choices.items():
                yield f"{path} {name}".strip(), inner
                yield from commands_of(inner, f"{path} {name}".strip())


def _pattern(path: str) -> str:
    return f"'{path}'*" if path else "*"


def _words(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, str]]:
    words: list[str] = []
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way
        words += [each for each in action.option_strings if each.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            words += action.choices
            for name, inner in action.choices.items():
                yield from _words(inner, f"{path} {name}".strip())
        elif not action.option_strings and action.choices:
            words += [str(each) for each in action.choices]
    yield path, " ".join(words)
