"""Every environment variable, by the process that reads it, with its default and a description."""

from __future__ import annotations

import os
from pathlib import Path

from ipuhub.env import Env

BASE_DIR = Path(__file__).resolve().parents[2]
"""The checkout; of an installed product the folder of its packages, which nothing writes into."""
ENV = Env(os.environ)
