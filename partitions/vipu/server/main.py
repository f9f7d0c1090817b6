"""glue: the vipu-server command: options, signals, exit codes."""

from __future__ import annotations

import signal
import sys
import threading

from ipuhub.process import logs
from partitions.vipu.server.options import parse_options
from partitions.vipu.server.server import ListenError, VipuServer
from partitions.vipu.server.statefile import StateFileError

CANNOT_LISTEN = 1
WRONG_OPTIONS = 2
STATE_FILE_UNUSABLE = 3


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    options = parse_options(arguments)
    logs.configure(options.log_level, "text")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = VipuServer(options)
    try:
        server.start()
    except ListenError as error:
        return _refuse(error, CANNOT_LISTEN)
    except StateFileError as error:
        return _refuse(error, STATE_FILE_UNUSABLE)
    except ValueError as error:
        return _refuse(error, WRONG_OPTIONS)
    stop.wait()
    server.stop()
    return 0


def _refuse(error: Exception, code: int) -> int:
    sys.stderr.write(f"vipu-server: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
