#!/usr/bin/env python
"""glue: the command `ipuhub`, from a checkout."""

from __future__ import annotations

from ipuhub.commandline import main

if __name__ == "__main__":
    main()
