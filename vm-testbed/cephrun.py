"""A real Ceph of one monitor and one OSD, for tests and the demo: Debian's packages, no systemd,
nothing but its own directory.

    with Ceph(directory) as ceph: ...                   on a loopback address of its own
    with CephRun(rack, directory) as ceph: ...          inside a rack's network, where the machines
    reach it at 10.99.0.1

The OSD keeps its data in memory and writes it down when it is stopped in an orderly way, so it can
be stopped and started again. The daemons are children of this process and die with it."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from patience import patience
from vrack.rack import Rack
from vrack.spec import HEAD_ADDRESS

HERE = Path(__file__).resolve().parent
POOL = "layercake"
CAPS = {
    "layercake": ("profile rbd", f"profile rbd pool={POOL}"),
    "node": ("profile rbd-read-only", f"profile rbd-read-only pool={POOL}"),
    "stranger": ("profile rbd-read-only", "profile rbd-read-only pool=elsewhere"),
}
"""The clients: (monitor, OSD) capabilities of the head, of the nodes, and of one that may not see
the pool."""

CONF = """[global]
fsid = {fsid}
mon_host = [v2:{address}:3300,v1:{address}:6789]
mon_initial_members = a
public_addr = {address}
cluster_addr = {address}
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
ms_bind_ipv6 = false
run_dir = {home}/run
admin_socket = {home}/run/$name.asok
log_file = {home}/log/$name.log
mon_cluster_log_file = {home}/log/cluster.log
crash_dir = {home}/log
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_crit = 1
[mon]
mon_data = {home}/mon.a
keyring = {home}/mon.keyring
# A small cluster has nothing to gather: without these, every change of the map waits a second.
paxos_propose_interval = 0.1
paxos_min_wait = 0.02
[osd]
osd_data = {home}/osd.0
keyring = {home}/osd.0.keyring
osd_objectstore = memstore
memstore_device_bytes = {memory}
# A fast shutdown would lose what a memstore holds.
osd_fast_shutdown = false
osd_op_num_shards = 2
# How soon a full OSD is known to be full: five seconds otherwise.
osd_heartbeat_interval = 1
osd_mon_report_interval = 1
# How soon it finds a monitor that was away: half a minute otherwise.
mon_client_hunt_interval = 1
mon_client_hunt_interval_max_multiple = 1
"""


class CephError(Exception):
    """The cluster did not do what was expected; the text holds what it said."""


class Ceph:
    """One cluster. `address` is where it listens, `enter` a command prefix that enters its network
    namespace."""

    def __init__(
        self,
        directory: Path,
        address: str = "",
        enter: Sequence[str] = (),
        *,
        memory_mb: int = 4096,
    ) -> None:
        self.directory = directory.resolve()
        self.address = (
            address
            or f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}.{secrets.randbelow(200) + 20}"
        )
        self.enter = list(enter)
        self.conf = self.directory / "ceph.conf"
        self._memory = memory_mb << 20
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def keyring(self, client: str) -> Path:
        """The keyring of one of CAPS' clients."""
        return self.directory / f"client.{client}.keyring"

    def key_file(self, client: str) -> Path:
        """The bare key of a client, as a secret reference wants it."""
        return self.directory / f"client.{client}.key"

    def up(self) -> None:
        """Makes the cluster, the pool and the clients' keys. Raises CephError."""
        for name in ("run", "log", "mon.a", "osd.0"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        fsid = str(uuid.uuid4())
        self.conf.write_text(
            CONF.format(fsid=fsid, address=self.address, home=self.directory, memory=self._memory)
        )
        try:
            self._make_monitor(fsid)
            self.start_mon()
            self._make_osd()
            self.start_osd()
            self._make_pool()
        except BaseException:
            self.down()
            raise

    def _make_monitor(self, fsid: str) -> None:
        ring, admin, chart = (
            self.directory / "mon.keyring",
            self.keyring("admin"),
            self.directory / "monmap",
        )
        everything = [word for what in ("mon", "osd", "mgr") for word in ("--cap", what, "allow *")]
        self._tool(
            "ceph-authtool",
            "--create-keyring",
            ring,
            "--gen-key",
            "-n",
            "mon.",
            "--cap",
            "mon",
            "allow *",
        )
        self._tool(
            "ceph-authtool",
            "--create-keyring",
            admin,
            "--gen-key",
            "-n",
            "client.admin",
            *everything,
        )
        self._tool("ceph-authtool", ring, "--import-keyring", admin)
        self._tool(
            "monmaptool",
            "--create",
            "--addv",
            "a",
            f"[v2:{self.address}:3300,v1:{self.address}:6789]",
            "--fsid",
            fsid,
            "--set-min-mon-release",
            "pacific",
            chart,
        )
        self._tool(
            "ceph-mon", "-c", self.conf, "--mkfs", "-i", "a", "--monmap", chart, "--keyring", ring
        )

    def _make_osd(self) -> None:
        ring, osd = self.directory / "osd.0.keyring", str(uuid.uuid4())
        self._tool(
            "ceph-authtool",
            "--create-keyring",
            ring,
            "--gen-key",
            "-n",
            "osd.0",
            "--cap",
            "mon",
            "allow profile osd",
            "--cap",
            "osd",
            "allow *",
            "--cap",
            "mgr",
            "allow profile osd",
        )
        key = self._tool("ceph-authtool", "-p", "-n", "osd.0", ring).strip()
        self.admin(({"prefix": "osd new", "uuid": osd, "id": 0}, json.dumps({"cephx_secret": key})))
        self._tool(
            *self.enter, "ceph-osd", "-c", self.conf, "-i", "0", "--mkfs", "--osd-uuid", osd
        )  # it asks the monitor

    def _make_pool(self) -> None:
        self.admin(
            ({"prefix": "osd pool create", "pool": POOL, "pg_num": 8}, ""),
            ({"prefix": "osd pool application enable", "pool": POOL, "app": "rbd"}, ""),
        )
        for client, (mon, osd) in CAPS.items():
            command = {
                "prefix": "auth get-or-create",
                "entity": f"client.{client}",
                "caps": ["mon", mon, "osd", osd],
            }
            (text,) = self.admin((command, ""))
            self._secret(self.keyring(client), text)
            self._secret(self.key_file(client), text.partition("key = ")[2].split()[0] + "\n")

    def _secret(self, path: Path, text: str) -> None:
        path.touch(mode=0o600)
        path.write_text(text)

    def start_mon(self) -> None:
        """Starts the monitor; returns when it answers, and an OSD that is there follows it
        again."""
        self._daemon("ceph-mon", "a")
        if "ceph-osd" in self._daemons:
            self._wait_osd_follows()

    def start_osd(self) -> None:
        """Starts the OSD; returns when it is up."""
        self._daemon("ceph-osd", "0")
        self._wait_osd(True)

    def stop_mon(self) -> None:
        """Stops the monitor."""
        self._end("ceph-mon")

    def stop_osd(self) -> None:
        """Stops the OSD in an orderly way; the monitor knows that it is down."""
        self._end("ceph-osd")

    def _wait_osd(self, up: bool, limit_s: float = 120.0) -> None:
        end = time.monotonic() + patience(limit_s)
        while True:
            (text,) = self.admin(({"prefix": "osd stat", "format": "json"}, ""))
            facts = json.loads(text)
            if (facts.get("num_up_osds") or facts.get("osdmap", {}).get("num_up_osds", 0)) == int(
                up
            ):
                return
            if time.monotonic() > end:
                raise CephError(
                    f"the OSD is not {'up' if up else 'down'} after {limit_s:.0f} s; see "
                    f"{self.directory}/log"
                )
            time.sleep(0.05)

    def _wait_osd_follows(self, limit_s: float = 120.0) -> None:
        """Until the OSD has a map that the monitor made now: what changes the map waits for that,
        longer than a client does."""
        self.admin(
            ({"prefix": "osd set", "key": "noscrub"}, ""),
            ({"prefix": "osd unset", "key": "noscrub"}, ""),
        )
        (text,) = self.admin(({"prefix": "osd stat", "format": "json"}, ""))
        newest, end = json.loads(text)["epoch"], time.monotonic() + patience(limit_s)
        while (
            json.loads(self.admin(({"osd": 0, "prefix": "status"}, ""))[0])["newest_map"] < newest
        ):
            if time.monotonic() > end:
                raise CephError(
                    f"the OSD does not follow the monitor after {limit_s:.0f} s; see "
                    f"{self.directory}/log"
                )
            time.sleep(0.05)

    def admin(self, *commands: tuple[dict[str, Any], str]) -> list[str]:
        """Runs commands of the monitor, or of {"osd": N}, with their input texts; returns what they
        print. Raises CephError."""
        argv = [
            *self.enter,
            sys.executable,
            str(HERE / "cephadmin.py"),
            str(self.conf),
            str(self.keyring("admin")),
        ]
        done = subprocess.run(
            argv,
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise CephError(f"cannot command the cluster: {done.stderr.strip()[-500:]}")
        return list(json.loads(done.stdout))

    def set_full(self, full: bool) -> None:
        """Makes an OSD that holds some kilobytes count as full, or takes that back; returns when
        the pool says so (about 5 s)."""
        near, back, high = ("0.000001", "0.000002", "0.000003") if full else ("0.85", "0.9", "0.95")
        order = ("nearfull", near), ("backfillfull", back), ("full", high)
        for name, ratio in order if full else reversed(order):
            self.admin(({"prefix": f"osd set-{name}-ratio", "ratio": float(ratio)}, ""))
        end = time.monotonic() + patience(60)
        while time.monotonic() < end:
            (text,) = self.admin(({"prefix": "osd dump", "format": "json"}, ""))
            if (
                any("full" in p["flags_names"].split(",") for p in json.loads(text)["pools"])
                == full
            ):
                return
            time.sleep(0.2)
        raise CephError("the pool's full flag did not follow")

    def down(self) -> None:
        """Ends the daemons. May be called twice, and after a failed `up`."""
        for name in ("ceph-osd", "ceph-mon"):
            self._end(name)

    def _tool(self, *argv: str | Path) -> str:
        done = subprocess.run(
            [str(a) for a in argv], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise CephError(f"cannot run {argv[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def _daemon(self, program: str, number: str) -> None:
        with (self.directory / "log" / f"{program}.out").open("ab") as out:
            self._daemons[program] = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    *self.enter,
                    program,
                    "-c",
                    str(self.conf),
                    "-i",
                    number,
                    "-f",
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def _end(self, program: str, grace_s: float = 20.0) -> None:
        process = self._daemons.pop(program, None)
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class CephRun(Ceph):
    """A cluster inside a rack's network; the rack must be up before it, and go down after it."""

    def __init__(self, rack: Rack, directory: Path | None = None, *, memory_mb: int = 4096) -> None:
        enter = ["ip", "netns", "exec", rack.namespace]
        super().__init__(
            directory or rack.directory / "ceph", HEAD_ADDRESS, enter, memory_mb=memory_mb
        )
