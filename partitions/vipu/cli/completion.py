"""domain: completion of commands and options for bash and zsh, out of the parser itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHELLS: Final = ("bash", "zsh")
# zsh ties a variable of the name `path` to PATH, and takes a letter after the last colon for a
# modifier. bash splits words at equals signs and colons too, as in [::1]:8090: what no space
# divides is joined again.
_SPLIT: Final = {
    "bash": """local -a parts=()
  local rest=$COMP_LINE last=-1 i
  for ((i = 0; i <= COMP_CWORD; i++)); do
    [[ $i -gt 0 && $rest != [[:space:]]* ]] || last=$((last + 1))
    rest=${rest#"${rest%%[![:space:]]*}"}
    rest=${rest#"${COMP_WORDS[i]}"}
    parts[last]+=${COMP_WORDS[i]}
  done""",
    "zsh": """local -a parts
  local last=$COMP_CWORD
  parts=("${COMP_WORDS[@]}")""",
}
_FUNCTION: Final = """_{name}() {{
  {split}
  local cur=${{parts[last]}} typed= option= word
  for word in "${{parts[@]:1:$((last - 1))}}"; do
    case "$word" in
      {valued}) option=$word ;;
      -*) option= ;;
      *) [[ -n $option ]] || typed="$typed $word"; option= ;;
    esac
  done
  case "$cur" in
    --*=*) option=${{cur%%=*}} cur=${{cur#*=}} ;;
  esac
  case "$option" in
    '') ;;
{values}
    *) return ;;
  esac
  [[ -z $option ]] || return
  case "${{typed# }}" in
{words}
  esac
}}
complete -o default -F _{name} {name}"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell; load it with `source <(vipu completion bash)`."""
    commands = [("", parser), *commands_of(parser)]
    values: dict[str, dict[str, None]] = {}
    for action in (each for _, command in commands for each in _options(command)):
        if action.nargs != 0:  # it takes a value
            for name in action.option_strings:
                values.setdefault(name, {}).update(dict.fromkeys(map(str, action.choices or ())))
    # The longest path first: what comes after a name completes as what comes before it.
    commands.sort(key=lambda each: -len(each[0]))
    script = _FUNCTION.format(
        name=parser.prog,
        split=_SPLIT[shell],
        valued="|".join(sorted(values)),
        values=_cases(
            (name, dict.fromkeys(words)) for name, words in sorted(values.items()) if words
        ),
        words=_cases((f"{path}*", _words(command)) for path, command in commands),
    )
    return script if shell == "bash" else _ZSH + script


def _cases(found: Iterable[tuple[str, Iterable[str]]]) -> str:
    lines = []
    for pattern, words in found:
        text, star = pattern.rstrip("*"), "*" if pattern.endswith("*") else ""
        reply = f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$cur\"))"
        lines.append(f"    '{text}'{star}) {reply} ;;")
    return "\n".join(lines)


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way
        if action.option_strings:
            yield action


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield what may come next in a command: options, and the words of its next argument."""
    for action in parser._actions:  # noqa: SLF001
        yield from (each for each in action.option_strings if each.startswith("--"))
        if not action.option_strings:
            yield from map(str, action.choices or ())


def commands_of(
    parser: argparse.ArgumentParser, path: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command with its path, such as `list partitions`, also by its other names."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, inner in action.choices.items():
                yield f"{path} {name}".strip(), inner
                yield from commands_of(inner, f"{path} {name}".strip())
