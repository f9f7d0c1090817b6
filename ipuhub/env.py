"""io: typed readers of environment variables, the only configuration source.

Each reader fails loudly with the variable's name and what it expects. `NAME_FILE` is read for
every variable, so that a secret can come from a mounted file. Every read is remembered in
`Env.declared`, from which `docs/reference/settings.md` is generated.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from ipuhub.text import is_label_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ipaddress import IPv4Network, IPv6Network


LAST_PORT = 65535


def port_number(text: str) -> int:
    """Return the port of a command line. Raises ValueError for a number that is no port."""
    number = int(text)
    if not 0 <= number <= LAST_PORT:
        raise ValueError(text)
    return number


class SettingError(ValueError):
    """An environment variable has a value that cannot be used."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting, as the reference page shows it."""

    name: str
    kind: str
    default: str
    doc: str
    readers: str = ""


_T = TypeVar("_T")
_JSON_LIST = re.compile(r"""\s*\[\s*["\]]""")  # not a group that is named [so]
_LARGEST = 2**31 - 1  # more is a mistake, and infinity no time to wait
_CRON_FIELD = re.compile(r"(?:\*|(\d{1,2})-(\d{1,2}))(?:/[1-9]\d?)?|(\d{1,2})")
_CRON_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


class Env:
    """Typed reader of settings from `environ` that remembers every declared setting."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.declared: dict[str, Declared] = {}
        self._readers = ""

    def read_by(self, readers: str) -> None:
        """Name the processes that read the settings declared from here on."""
        self._readers = readers

    def is_set(self, name: str) -> bool:
        """Return whether the environment sets `name`, even to an empty value."""
        return name in self._environ or bool(self._environ.get(f"{name}_FILE"))

    def text(self, name: str, default: str, *, doc: str) -> str:
        """Text."""
        return self._read(name, default, doc, "text", lambda text: text)

    def pattern(self, name: str, default: str, expression: str, *, doc: str) -> str:
        """Text that a regular expression matches in whole."""

        def parse(text: str) -> str:
            if not re.fullmatch(expression, text):
                raise ValueError(text)
            return text

        return self._read(name, default, doc, f"text like {expression}", parse)

    def integer(
        self,
        name: str,
        default: int,
        *,
        doc: str,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> int:
        """A whole number, at least `minimum` and at most `maximum`."""

        def parse(text: str) -> int:
            number = int(text)
            if abs(number) > _LARGEST:
                raise ValueError(text)
            if minimum is not None and number < minimum:
                raise ValueError(text)
            if maximum is not None and number > maximum:
                raise ValueError(text)
            return number

        kind = "integer" if minimum is None else f"integer, at least {minimum}"
        kind += "" if maximum is None else f" and at most {maximum}"
        return self._read(name, default, doc, kind, parse)

    def port(self, name: str, default: int, *, doc: str) -> int:
        """A port to listen on; what 0 means, the sentence says."""
        return self.integer(name, default, minimum=0, maximum=LAST_PORT, doc=doc)

    def number(self, name: str, default: float, *, doc: str, minimum: float = 0.0) -> float:
        """A number, at least `minimum`."""

        def parse(text: str) -> float:
            number = float(text)
            if not minimum <= number <= _LARGEST:
                raise ValueError(text)
            return number

        return self._read(name, default, doc, f"number, at least {minimum:g}", parse)

    def switch(self, name: str, default: bool, *, doc: str) -> bool:
        """A switch: on/off, true/false, yes/no, 1/0."""

        def parse(text: str) -> bool:
            word = text.strip().lower()
            if word not in _TRUE | _FALSE:
                raise ValueError(text)
            return word in _TRUE

        return self._read(name, default, doc, "on or off", parse)

    def words(self, name: str, default: Sequence[str], *, doc: str) -> list[str]:
        """Comma-separated texts; blanks around them and empty texts are dropped."""

        def parse(text: str) -> list[str]:
            return [part.strip() for part in text.split(",") if part.strip()]

        return self._read(name, [*default], doc, "comma-separated list", parse)

    def texts(self, name: str, *, doc: str) -> list[str]:
        """Texts as in `words`, or a JSON list of texts, which may have commas; none by default."""

        def parse(text: str) -> list[str]:
            if not _JSON_LIST.match(text):
                return [part.strip() for part in text.split(",") if part.strip()]
            try:
                found = json.loads(text)
            except RecursionError:
                raise ValueError(text) from None
            if not all(isinstance(part, str) and part.strip() for part in found):
                raise ValueError(text)
            return [part.strip() for part in found]

        return self._read(name, [], doc, "comma-separated list or JSON list of texts", parse)

    def label_keys(self, name: str, *, doc: str) -> list[str]:
        """Comma-separated keys of labels, each as Kubernetes takes it; none by default."""

        def parse(text: str) -> list[str]:
            keys = [part.strip() for part in text.split(",") if part.strip()]
            if not all(is_label_key(key) for key in keys):
                raise ValueError(text)
            return keys

        kind = "comma-separated label keys, such as a.example/team"
        return self._read(name, [], doc, kind, parse)

    def networks(self, name: str, *, doc: str) -> list[IPv4Network | IPv6Network]:
        """Comma-separated networks or single addresses; none by default."""

        def parse(text: str) -> list[IPv4Network | IPv6Network]:
            return [ip_network(part.strip()) for part in text.split(",") if part.strip()]

        return self._read(name, [], doc, "comma-separated networks, such as 10.0.0.0/8", parse)

    def zone(self, name: str, default: str, *, doc: str) -> ZoneInfo:
        """A time zone by its IANA name."""

        def parse(text: str) -> ZoneInfo:
            try:
                return ZoneInfo(text)
            except (KeyError, OSError) as error:  # unknown; or the name of a folder
                raise ValueError(text) from error

        kind = "time zone, such as Europe/Berlin"
        return self._read(name, ZoneInfo(default), doc, kind, parse)

    def cron(self, name: str, default: str, *, doc: str) -> str:
        """Return a schedule: minute, hour, day of the month, month, day of the week."""

        def parse(text: str) -> str:
            fields = text.split()
            if len(fields) != len(_CRON_BOUNDS):
                raise ValueError(text)
            if not all(map(_is_cron_field, fields, _CRON_BOUNDS)):
                raise ValueError(text)
            *others, weekdays = fields
            return " ".join([*others, _with_sunday_first(weekdays)])

        return self._read(name, default, doc, "cron expression, such as 30 6 * * 1-5", parse)

    def choice(self, name: str, default: str, choices: Sequence[str], *, doc: str) -> str:
        """One of `choices`."""

        def parse(text: str) -> str:
            if text not in choices:
                raise ValueError(text)
            return text

        return self._read(name, default, doc, "one of " + ", ".join(choices), parse)

    def minor_version(self, name: str, default: int, *, doc: str) -> int:
        """A version of Kubernetes as its minor number, written v1.N; `latest` is the default."""

        def parse(text: str) -> int:
            if text == "latest":
                return default
            found = re.fullmatch(r"v?1\.(\d{1,3})", text)
            if not found:
                raise ValueError(text)
            return int(found[1])

        value = self._read(name, default, doc, "version like v1.30, or latest", parse)
        self.declared[name] = replace(self.declared[name], default="latest")
        return value

    def _read(self, name: str, default: _T, doc: str, kind: str, parse: Callable[[str], _T]) -> _T:
        rendered = ",".join(default) if isinstance(default, list) else str(default)
        self.declared[name] = Declared(name, kind, rendered, doc, self._readers)
        text = self._text(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError:
            raise SettingError(f"{name} must be {kind}, not {text!r}") from None

    def _text(self, name: str) -> str | None:
        file_name = self._environ.get(f"{name}_FILE")
        if file_name:
            if name in self._environ:
                raise SettingError(f"{name} and {name}_FILE are both set: keep one")
            try:
                return Path(file_name).read_text(encoding="utf-8").strip()
            except OSError as error:
                problem = f"{error.strerror}: '{file_name}'"
                raise SettingError(f"{name}_FILE: {problem}") from None
        return self._environ.get(name)


def _with_sunday_first(weekdays: str) -> str:
    """Return the days of the week with 0 for Sunday where they say 7, which Celery refuses."""

    def renumbered(part: str) -> str:
        days, _, step = part.partition("/")
        first, _, last = days.partition("-")
        if last in {"7", "07"}:
            within = range(int(first), 8, int(step or 1))
            return ",".join(str(day % 7) for day in within)
        return re.sub("^0?7", "0", part)

    return ",".join(map(renumbered, weekdays.split(",")))


def _is_cron_field(text: str, bounds: tuple[int, int]) -> bool:
    """Return whether each part of a field is `*`, a number or a range, within the bounds."""
    parts = [_CRON_FIELD.fullmatch(part) for part in text.split(",")]
    numbers = [int(each) for part in parts if part for each in part.groups() if each]
    return all(parts) and all(bounds[0] <= each <= bounds[1] for each in numbers)
