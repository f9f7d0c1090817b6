"""The structure that the code promises: rooms of a readable size, and no way round in a circle.

What may import what stands in `.importlinter`, by folder.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.builders.sourcenodes import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
DOING = {"aiohttp", "django", "grpc", "kubernetes", "psycopg"}  # what no domain module may reach
HOUSES = ("dashboard", "devcluster", "ipuhub", "jobs", "partitions", "usage")
MODULES = sorted(
    path
    for house in HOUSES
    for path in (ROOT / house).rglob("*.py")
    if "_pb2" not in path.name and "migrations" not in path.parts
)
SMALLEST, LARGEST, LONGEST_FUNCTION, FULLEST = 40, 400, 60, 25
# What Django or a command line looks for under a name of its own may be as small as it is.
DOORS = {"__init__.py", "apiurls.py", "urls.py", "wsgi.py", "settings_lean.py", "main.py"}
DOOR_FOLDERS = {"commands", "templatetags"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def tree_of(path: Path) -> ast.Module:
    tree = nodes_of(path)[0]
    assert isinstance(tree, ast.Module)
    return tree


NAMES = {name_of(path): path for path in MODULES}


@cache
def imports_of(path: Path) -> set[str]:
    """The modules of ours that a module names, also inside functions and for types only."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in NAMES else node.module)
    return found & (NAMES.keys() - {name_of(path)})


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Modules that stay when all that import none, or are imported by none, are taken away."""
    left = {name: set(others) for name, others in imports.items()}
    while True:
        wanted = set().union(*left.values()) if left else set()
        ends = {name for name, others in left.items() if not others or name not in wanted}
        if not ends:
            return [sorted({name, *others}) for name, others in sorted(left.items())]
        left = {name: others - ends for name, others in left.items() if name not in ends}


def test_every_module_says_its_layer() -> None:
    by_module = {
        name: (ast.get_docstring(tree_of(path)) or "").partition(":")[0]
        for name, path in NAMES.items()
        if path.name != "__init__.py"
    }
    assert [
        name for name, layer in by_module.items() if layer not in {"domain", "io", "glue"}
    ] == []


def reached_from(name: str) -> set[str]:
    """A module, all that it imports, and so on."""
    reached, ahead = set(), {name}
    while ahead:
        reached |= ahead
        ahead = set().union(*(imports_of(NAMES[each]) for each in ahead)) - reached
    return reached


@cache
def packages_of(path: Path) -> frozenset[str]:
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return frozenset(found)


def test_domain_modules_do_no_io() -> None:
    domain = [
        name
        for name, path in NAMES.items()
        if (ast.get_docstring(tree_of(path)) or "").startswith("domain:")
    ]
    assert len(domain) > 90
    doing = {
        (name, each)
        for name in domain
        for each in reached_from(name)
        if packages_of(NAMES[each]) & DOING
    }
    assert doing == set()


def test_the_page_about_the_house_names_rooms_that_are_there() -> None:
    text = (ROOT / "docs/developer/architecture.md").read_text("utf-8")
    named = re.findall(rf"`((?:{'|'.join(HOUSES)})/[\w/.]*)`", text)
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []


def pictures() -> list[list[dict[str, set[str]]]]:
    """Return the pictures of the page: their floors, and on each its rooms with their arrows."""
    text = (ROOT / "docs/developer/architecture.md").read_text("utf-8")
    section = text.partition("## Floors\n")[2].partition("\n## ")[0]
    return [
        [
            {rooms[0]: set(rooms[1:]) for line in floor.splitlines() if (rooms := rooms_in(line))}
            for floor in picture.split("---\n")
        ]
        for picture in re.findall(r"(?m)(?:^ {4}.+\n)+", section)
    ]


def rooms_in(line: str) -> list[str]:
    return [each[:-1].replace("/", ".") for each in re.findall(r"[a-z][a-z/]*/", line)]


def room_of(name: str, rooms: Iterable[str]) -> str:
    return max((each for each in rooms if f"{name}.".startswith(f"{each}.")), key=len, default="")


def arrows_between(rooms: Iterable[str]) -> dict[str, set[str]]:
    """Return what each room imports of the others, management commands apart."""
    arrows: dict[str, set[str]] = {room: set() for room in rooms}
    for name, path in NAMES.items():
        room = room_of(name, arrows)
        if room and "management" not in path.parts:
            arrows[room] |= {room_of(each, arrows) for each in imports_of(path)} - {room, ""}
    return arrows


@cache
def layers() -> list[list[set[str]]]:
    """Return the floors of each contract in `.importlinter` that has floors."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    return [
        [set(floor.split(" | ")) for floor in config[each]["layers"].split("\n") if floor]
        for each in config.sections()
        if "layers" in config[each]
    ]


@pytest.mark.parametrize("number", range(2))
def test_the_picture_of_the_floors_shows_the_imports_there_are(number: int) -> None:
    floors = pictures()[number]
    drawn = {room: others for floor in floors for room, others in floor.items()}
    assert drawn == arrows_between(drawn)
    for room, others in drawn.items():
        below = next(index for index, floor in enumerate(floors) if room in floor) + 1
        assert others <= set().union(*floors[below:]), room


def test_the_pictures_have_the_floors_that_are_enforced() -> None:
    assert len(pictures()) == len(layers()) == 2
    for floors, layered in zip(pictures(), layers(), strict=True):
        bound = set().union(*layered)
        assert [floor.keys() & bound for floor in floors] == layered
        assert set().union(*floors) - bound <= {"devcluster"}
    assert {room.partition(".")[0] for floor in pictures()[0] for room in floor} == set(HOUSES)


def entered_by(name: str, imported: str) -> set[str]:
    """The packages around a module that run before it, but those that are around the importer."""
    around = {imported.rpartition(".")[0]} if "." in imported else set()
    around |= entered_by(name, next(iter(around))) if around else set()
    return {each for each in around & NAMES.keys() if not f"{name}.".startswith(f"{each}.")}


def test_no_imports_run_in_a_circle() -> None:
    assert circles({name: imports_of(path) for name, path in NAMES.items()}) == []


def test_no_module_has_to_be_imported_before_another() -> None:
    """Importing `a.b` runs `a/__init__.py` first: a circle through that breaks by import order."""
    assert (
        circles(
            {
                name: imported.union(*(entered_by(name, each) for each in imported))
                for name, imported in ((name, imports_of(path)) for name, path in NAMES.items())
            }
        )
        == []
    )


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert circles(imports) == [["b", "c"], ["b", "c"]]


def test_no_folder_is_a_hall() -> None:
    rooms = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {str(folder): count for folder, count in rooms.items() if count > FULLEST} == {}


def test_no_room_is_smaller_than_its_door() -> None:
    small = [
        name
        for name, path in NAMES.items()
        if path.name not in DOORS
        and path.parent.name not in DOOR_FOLDERS
        and len(path.read_text("utf-8").splitlines()) < SMALLEST
    ]
    assert small == []


def test_no_module_of_the_product_or_its_tests_is_too_long() -> None:
    modules = [*MODULES, *(ROOT / "tests").rglob("*.py")]
    lines_of = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in modules
    }
    assert {name: lines for name, lines in lines_of.items() if lines > LARGEST} == {}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_stay_readable(path: Path) -> None:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"


def test_options_are_given_by_their_names() -> None:
    """Two durations in the wrong order are no error that a type checker could find."""
    unnamed = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in MODULES
        if "devcluster" not in path.relative_to(ROOT).parts
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
        and node.name.endswith(("Options", "Timing", "Latencies", "Pace"))
        and not any("kw_only=True" in ast.unparse(each) for each in node.decorator_list)
    ]
    assert unnamed == []


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ("web.AppRunner(", []),
        ("web.TCPSite(", []),
        ("web.SockSite(", []),
        (".create_server(", []),
        (" CountedRunner(", ["ipuhub.process.connections", "ipuhub.process.health"]),
        ("web.ServerRunner(", ["ipuhub.webserver.server"]),
    ],
)
def test_every_http_server_has_the_limits_of_all(call: str, where: list[str]) -> None:
    """aiohttp alone waits an hour for half a head, logs a traceback for bytes of a stranger, and
    lets silent connections take every open file."""
    made = [name for name, path in NAMES.items() if call in path.read_text("utf-8")]
    assert sorted(made) == where
