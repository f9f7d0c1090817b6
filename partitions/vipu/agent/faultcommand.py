"""glue: `vipu-agent fault` and `vipu-agent repair`: inject and repair faults of a simulated
machine."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipuhub.addresses import address_of
from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import Fault, FaultKind
from partitions.vipu.errors import NoAnswer, VipuError
from partitions.vipu.serving import OptionParser, port_number, seconds
from partitions.vipu.tlsfiles import ClientTls, TlsFilesError

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES: Final = ("fault", "repair")
_MOST: Final = 255
DONE, REFUSED, WRONG, NO_ANSWER = 0, 1, 2, 3


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(_send(options))
    except NoAnswer as error:
        check = "Check --api-host and --api-port, and --ca where the agent uses TLS"
        return _say(f"vipu-agent: {error}. {check}", NO_ANSWER)
    except VipuError as error:
        return _say(f"vipu-agent: {error}", REFUSED)
    except TlsFilesError as error:
        return _say(f"vipu-agent: {error}", WRONG)
    of_ipu = "" if options.ipu is None else f", IPU {options.ipu}"
    what = options.kind if options.action == "fault" else f"all faults{of_ipu}"
    sys.stdout.write(f"{options.action} ({what}): success.\n")
    return DONE


async def _send(options: argparse.Namespace) -> None:
    tls = ClientTls(options.ca, options.certificate, options.key) if options.ca else None
    address = address_of(options.api_host, options.api_port)
    async with AgentClient(address, deadline_seconds=10, tls=tls) as client:
        if options.action == "repair":
            await client.repair(options.ipu)
            return
        duration = None if options.seconds is None else timedelta(seconds=options.seconds)
        fault = Fault(options.kind, options.ipu, options.link, seconds=options.latency)
        await client.inject(fault, duration)


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return code


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _MOST:
        raise argparse.ArgumentTypeError(f"{number} is not a device number (0 to {_MOST})")
    return number


def _parser() -> OptionParser:
    parser = OptionParser(
        prog="vipu-agent",
        epilog="Exit codes: 0 done; 1 the agent refused; 2 wrong options; 3 no answer.",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    fault = actions.add_parser(
        "fault",
        help="let a simulated machine fail",
        examples=(
            "vipu-agent fault ipu-error --ipu 2",
            "vipu-agent fault link-down --ipu 1 --link 3 --seconds 60 -H 10.1.2.1",
            "vipu-agent fault hang --api-port 8101",
        ),
    )
    fault.add_argument("kind", type=FaultKind, choices=list(FaultKind), help="what fails")
    fault.add_argument("--ipu", type=_number, default=0, help="device number of the IPU (0)")
    fault.add_argument("--link", type=_number, default=0, help="number of the IPU-Link (0)")
    fault.add_argument("--seconds", type=seconds, help="end of the fault; without: until repair")
    fault.add_argument(
        "--latency",
        type=seconds,
        default=30.0,
        help="seconds that slow resets and removals take (30)",
    )
    repair = actions.add_parser(
        "repair",
        help="end the faults of a simulated machine",
        examples=("vipu-agent repair", "vipu-agent repair --ipu 2 -H 10.1.2.1"),
    )
    repair.add_argument("--ipu", type=_number, help="only faults of this IPU")
    for each in (fault, repair):
        each.add_argument("-H", "--api-host", default="127.0.0.1", help="the agent (127.0.0.1)")
        each.add_argument("--api-port", type=port_number, default=8080, help="its port (8080)")
        each.add_argument("--ca", type=Path, help="file with the CA of the agent, for TLS")
        each.add_argument("--certificate", type=Path, help="file with our certificate")
        each.add_argument("--key", type=Path, help="file with its private key")
    return parser
