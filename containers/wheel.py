"""Adds the pages to the wheel: `templates/` of the checkout becomes `ipuhub/templates`."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """setuptools' step that copies packages, and the templates besides."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            to = Path(self.build_lib, "ipuhub", "templates")
            shutil.copytree("templates", to, dirs_exist_ok=True)
