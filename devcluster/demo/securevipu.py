"""io: the demo's V-IPU in secure mode: certificates, the proxy's user, files for `vipu`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ipuhub.certificates import write_private
from partitions.vipu.accessfiles import ACCESS_KEY, POD_CERTIFICATE, POD_KEY, USER_ID
from partitions.vipu.certificates import CA, CERTIFICATE, KEY, Role, init_certificates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from devcluster.demo.vipufleet import DemoController

_HOSTS: Final = ("localhost", "127.0.0.1")
_USER: Final = "ipuhub"
_SECONDS: Final = 60


class SecureVipuError(RuntimeError):
    """The secure mode cannot begin; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class SecureVipu:
    """The files of the secure mode in the folder of one demo."""

    directory: Path

    @property
    def tls(self) -> Path:
        """The CA, and a folder of certificates for each role."""
        return self.directory / "vipu-tls"

    @property
    def access(self) -> Path:
        """Return the file of the proxy's credentials for each controller, as
        IPUHUB_VIPU_ACCESS_PATH has it."""
        return self.directory / "vipu-access"

    def configuration(self, program: str, controller: DemoController) -> Path:
        """The configuration of `vipu` or `vipu-admin` for a controller."""
        more = f"-{controller.number + 1}" if controller.number else ""
        return self.directory / f"{program}{more}.hcl"

    @property
    def server_options(self) -> list[str]:
        """Of vipu-server and vipu-agent."""
        return ["--secure", "--tls-dir", str(self.tls)]

    def prepare(self, controllers: list[DemoController], ports: Mapping[str, int]) -> None:
        """Renew the certificates, and make what is not there yet. Raise SecureVipuError."""
        now = datetime.now(UTC)
        init_certificates(self.tls, _HOSTS, now)
        pods = self.directory / "vipu-pods"
        shutil.rmtree(pods, ignore_errors=True)
        shutil.copytree(self.tls / Role.USER, pods)
        init_certificates(self.tls, _HOSTS, now)  # no pod holds the proxy's certificate
        for controller in controllers:
            folder = self.access / f"127.0.0.1_{ports[controller.purpose]}"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (folder / ACCESS_KEY).exists():
                write_private(folder / USER_ID, _USER.encode())
                write_private(folder / ACCESS_KEY, self._first_user(controller).encode())
            ours = self.tls / Role.USER
            for to, source in (
                *((name, ours / name) for name in (CA, CERTIFICATE, KEY)),
                (POD_CERTIFICATE, pods / CERTIFICATE),
                (POD_KEY, pods / KEY),
            ):
                write_private(folder / to, source.read_bytes())
            self._write_configurations(controller, ports, folder)

    def _first_user(self, controller: DemoController) -> str:
        """Make a controller's state file with the proxy's user in it; return the key."""
        command = [sys.executable, "-m", "partitions.vipu.server.main", "--init", "--secure"]
        command += ["--default-user-id", _USER, *controller.layout]
        command += ["--storage", str(self.directory / controller.storage)]
        done = subprocess.run(  # noqa: S603  # our own program
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode != 0:
            raise SecureVipuError(
                f"{done.stderr.strip()}. A demo that began without --secure has no users: start "
                "with --dir and another folder"
            )
        return done.stdout.rpartition("Access key is '")[2].partition("'")[0]

    def _write_configurations(
        self, controller: DemoController, ports: Mapping[str, int], folder: Path
    ) -> None:
        where = {
            "api-host": "127.0.0.1",
            "api-port": str(ports[controller.purpose]),
            "admin-port": str(ports[controller.admin_purpose]),
        }
        user = {f"api-{name}": (folder / name).read_text("ascii") for name in (USER_ID, ACCESS_KEY)}
        for program, role, more in (("vipu", Role.USER, user), ("vipu-admin", Role.ADMIN, {})):
            ours = self.tls / role
            files = {"ca": ours / CA, "certificate": ours / CERTIFICATE, "key": ours / KEY}
            lines = [f'{name}="{value}"\n' for name, value in (where | more | files).items()]
            write_private(self.configuration(program, controller), "".join(lines).encode())
