"""io: generates the gRPC modules next to the .proto files (`make proto`).

The generated files are committed, because an installation needs no compiler. A test generates them
again and compares.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
# Formatter and linter leave the files as the compiler wrote them, whatever their names.
_NOT_OURS = "# ruff: noqa: E501, I001, N802, UP007, UP035, UP036\n# fmt: off\n"


def generate(out: Path) -> list[Path]:
    """Write the modules for all .proto files below `out`, in the repository's folders.

    Returns the files written; raises RuntimeError when the compiler refuses.
    """
    # Part of the development environment only; the product never compiles.
    from grpc_tools import protoc

    scripts = Path(sys.executable).parent
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
        *(f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")),
        *(str(proto) for proto in sorted(FOLDER.glob("*.proto"))),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc refused the .proto files; its words stand above")
    written = sorted((out / FOLDER.relative_to(ROOT)).glob("*_pb2*.py*"))
    for path in written:
        path.write_text(_NOT_OURS + path.read_text(encoding="utf-8"), encoding="utf-8")
    return written


def main() -> int:
    """Generate into the repository; the exit code is 0, or 1 when the compiler refuses."""
    argparse.ArgumentParser(description="Make the gRPC modules from the .proto files.").parse_args()
    try:
        written = generate(ROOT)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
