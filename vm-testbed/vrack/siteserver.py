"""A DHCP server of the site on a rack's bridge: a real one (dnsmasq, Kea, ISC dhcpd) with an
address of its own, in a network namespace of its own.

    machines - br0 - head (10.99.0.1)
                   - eth0 (10.99.0.2) the site's server
"""

from __future__ import annotations

import enum
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from patience import patience

from vrack import netns
from vrack.around import Around
from vrack.rack import Rack, RackError
from vrack.spec import BRIDGE

ADDRESS, CARD = "10.99.0.2", "eth0"
_LIMIT_S = 20.0
_PORT_67 = ":0043 "
_BEGIN = f"""
until ip link show {CARD} >/dev/null 2>&1; do sleep 0.05; done
set -e
ip link set lo up
ip addr add {ADDRESS}/24 dev {CARD}
ip link set {CARD} up
exec "$@"
"""


class Kind(enum.Enum):
    """Which server. The value is its program."""

    DNSMASQ = "dnsmasq"
    KEA = "kea-dhcp4"
    ISC = "dhcpd"


def command(kind: Kind, config: str, directory: Path) -> list[str]:
    """The argv of a server in the foreground with this configuration, whose files are in
    `directory`, on a card named eth0. Raises RackError if it is not installed."""
    if shutil.which(kind.value) is None:
        raise RackError(
            f"cannot run the site's DHCP server: {kind.value} is missing; install dnsmasq-base, "
            "kea-dhcp4-server and "
            "isc-dhcp-server"
        )
    directory.mkdir(parents=True, exist_ok=True)
    path, leases = directory / f"{kind.value}.conf", directory / f"{kind.value}.leases"
    path.write_text(config)
    if kind is Kind.DNSMASQ:
        return [
            "dnsmasq",
            "--keep-in-foreground",
            f"--conf-file={path}",
            f"--dhcp-leasefile={leases}",
            "--user=root",
            "--log-dhcp",
            "--log-facility=-",
            f"--pid-file={directory}/pid",
        ]
    if kind is Kind.KEA:
        return [
            "env",
            f"KEA_PIDFILE_DIR={directory}",
            f"KEA_LOCKFILE_DIR={directory}",
            "kea-dhcp4",
            "-c",
            str(path),
        ]
    leases.touch()
    return ["dhcpd", "-4", "-f", "-d", "--no-pid", "-cf", str(path), "-lf", str(leases), CARD]


class SiteServer(Around):
    """The server on the bridge of a rack that is up. `with SiteServer(rack, kind, config):` starts
    it and takes it away again; its process ends with the one that made it. `log` is what it
    says."""

    def __init__(self, rack: Rack, kind: Kind, config: str) -> None:
        super().__init__(rack, "the site's DHCP server")
        self._kind, self._config = kind, config
        self._server: subprocess.Popen[Any] | None = None
        self.log = rack.directory / f"{kind.value}.log"

    def up(self) -> None:
        """Starts it; returns when it listens. Raises RackError."""
        argv = command(self._kind, self._config, self._rack.directory / "site-server")
        with self.log.open("w") as log:
            self._server = self._rack.exec(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    "unshare",
                    "--net",
                    "sh",
                    "-c",
                    _BEGIN,
                    "sh",
                    *argv,
                ],
                stdout=log,
                stderr=log,
            )
        others = {
            Path("/proc/self/ns/net").stat().st_ino,
            (netns.RUN / self._rack.namespace).stat().st_ino,
        }
        process = Path(f"/proc/{self._server.pid}")
        self._until("it does not start", lambda: (process / "ns/net").stat().st_ino not in others)
        self._batch(
            [
                f"link add site-head type veth peer name {CARD} netns {self._server.pid}",
                f"link set site-head master {BRIDGE} up",
            ]
        )
        self._until(
            "it does not listen",
            lambda: (
                any(_PORT_67 in (process / "net" / table).read_text() for table in ("udp", "raw"))
                or self._hears(process)
            ),
        )

    def _hears(self, process: Path) -> bool:
        """Whether it has a packet socket, as Kea and dhcpd use them."""
        return len((process / "net/packet").read_text().splitlines()) > 1

    def _until(self, why: str, so: Any) -> None:
        limit = time.monotonic() + patience(_LIMIT_S)
        while not so():
            if self._server is None or self._server.poll() is not None or time.monotonic() > limit:
                raise RackError(
                    f"cannot run the site's DHCP server: {why}\n{self.log.read_text()[-1000:]}"
                )
            time.sleep(0.05)

    def down(self) -> None:
        """Ends it with its namespace. May be called twice."""
        server, self._server = self._server, None
        if server is None:
            return
        subprocess.run(
            ["ip", "-n", self._rack.namespace, "link", "del", "site-head"],
            capture_output=True,
            check=False,
        )
        server.kill()
        server.wait()
