"""Brings a virtual rack up and takes it down; what a test does to a rack from outside."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from patience import patience

from vrack import inventory as yaml_inventory
from vrack import libvirt_room, netns, qemu
from vrack.client import ask
from vrack.ipmi_bmc import write_config
from vrack.metal import wait_until_gone
from vrack.owner import OWNER, claim
from vrack.secrets import RackSecrets, make_secrets
from vrack.serial_line import TERMINAL
from vrack.spec import (
    INBAND_PORT,
    IPMI_PORT,
    REDFISH_PORT,
    BmcKind,
    VmSpec,
    place_all,
    standard_nodes,
)

_HERE = Path(__file__).resolve().parent
_UP_LIMIT_S, _LIBVIRT_LIMIT_S = 60.0, 300.0
_DOWN_LIMIT_S = 20.0


Command = Callable[[VmSpec, Path, str, str], list[str]]


class RackError(Exception):
    """The rack cannot do what was asked: "cannot X: why"."""


class Rack:
    """A virtual rack in a network namespace of its own; needs root.

    `nodes` is a list of machines or a count of the usual mix. Everything that it writes is under
    `directory`: nN/console.log is the console of node N over all its boots. `accel` is "kvm" or
    "tcg", "" to find out. `command` makes a machine's command line; tests of BMCs alone put
    something lighter than QEMU there. With `libvirt` the machines are libvirt's, with BMCs of
    libvirt_room.py; what a test does to one from outside is not there then. `with Rack(...) as
    rack:` brings it up and always takes it down again.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[VmSpec] | int,
        name_suffix: str = "",
        *,
        accel: str = "",
        command: Command = qemu.command_line,
        libvirt: bool = False,
    ) -> None:
        self.directory = directory.resolve()
        self.nodes = place_all(standard_nodes(nodes) if isinstance(nodes, int) else nodes)
        self.namespace = f"lc-{secrets.token_hex(3)}{'-' + name_suffix if name_suffix else ''}"
        self.secrets: RackSecrets | None = None
        self._accel = accel
        self._command = command
        self._libvirt = self.directory / "libvirt" if libvirt else None
        # not under `directory`: a Unix socket's path is at most 107 bytes
        self._socket = f"/run/{self.namespace}.sock"
        self._owner = Path(f"/run/{self.namespace}.{OWNER}")
        self._hypervisor: subprocess.Popen[str] | None = None
        self._commands: list[subprocess.Popen[Any]] = []
        self._paused: set[int] = set()

    def __enter__(self) -> Rack:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(self) -> None:
        """Makes namespace, bridge, taps and BMCs; returns when every BMC answers. All machines are
        off. Raises RackError."""
        if os.geteuid() != 0:
            raise RackError("cannot bring up a rack: it needs root for its network namespace")
        missing = {
            **qemu.missing_tools(self.nodes),
            **(libvirt_room.missing_tools() if self._libvirt else {}),
        }
        if missing:
            packages = " ".join(sorted(set(missing.values())))
            raise RackError(
                f"cannot bring up a rack: {', '.join(missing)} missing; install {packages}"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        claim(self._owner)
        self.secrets = make_secrets(
            self.directory / "secrets", [node.bmc_address for node in self.nodes]
        )
        try:
            netns.create(self.namespace, self.nodes)
            self._start(self._write_files())
        except subprocess.CalledProcessError as error:
            self.down()
            raise RackError(f"cannot bring up a rack: {error.stderr.strip() or error}") from error
        except BaseException:
            self.down()
            raise

    def _write_files(self) -> Path:
        machines, bmcs, domains = [], [], list[str]()
        accel = qemu.pick_accel(self._accel)
        for index, node in enumerate(self.nodes):
            home = self.node_directory(index)
            home.mkdir(exist_ok=True)
            qemu.prepare_files(node, home)
            bmc = {
                "node": node.name,
                "kind": node.bmc.value,
                "address": node.bmc_address,
                "log": str(home / "bmc.log"),
            }
            if self._libvirt is not None:
                domains.append(libvirt_room.domain(node, home, accel))
                bmcs.append({**bmc, **self._of_libvirt(node, home, index, self._libvirt)})
                continue
            argv = self._command(node, home, netns.tap(index), accel)
            machines.append(
                {"name": node.name, "argv": argv, "directory": str(home), "line": node.sol}
            )
            make = self._ipmi if node.bmc is BmcKind.IPMI else self._redfish
            bmcs.append({**bmc, **make(node, home)})
        path = self.directory / "rack.json"
        path.write_text(
            json.dumps(
                {
                    "namespace": self.namespace,
                    "socket": self._socket,
                    "accel": accel,
                    "machines": machines,
                    "bmcs": bmcs,
                    "libvirt": None
                    if self._libvirt is None
                    else {"directory": str(self._libvirt), "domains": domains},
                    "nodes": [
                        {k: str(getattr(v, "value", v)) for k, v in asdict(node).items()}
                        for node in self.nodes
                    ],
                },
                indent=1,
            )
        )
        (self.directory / "inventory.yaml").write_text(self.inventory())
        return path

    def _of_libvirt(self, node: VmSpec, home: Path, index: int, libvirt: Path) -> dict[str, Any]:
        if node.bmc is BmcKind.IPMI:
            return {
                "port": IPMI_PORT,
                "argv": libvirt_room.ipmi(node, home, index, self._secrets, libvirt),
            }
        return {
            "port": REDFISH_PORT,
            "argv": libvirt_room.redfish(node, home, self._secrets, libvirt),
        }

    def _ipmi(self, node: VmSpec, home: Path) -> dict[str, Any]:
        chassis = [sys.executable, "-IS", str(_HERE / "chassis.py"), self._socket, node.name]
        return {
            "port": IPMI_PORT,
            "argv": write_config(
                home / "bmc",
                node.name,
                node.bmc_address,
                IPMI_PORT,
                self._secrets.password,
                chassis,
                inband=INBAND_PORT if node.inband else 0,
                sol=str(home / TERMINAL) if node.sol else "",
            ),
        }

    def _redfish(self, node: VmSpec, home: Path) -> dict[str, Any]:
        state = home / "bmc"
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        config = state / "config.json"
        config.write_text(
            json.dumps(
                {
                    "address": node.bmc_address,
                    "port": REDFISH_PORT,
                    "socket": self._socket,
                    "node": node.name,
                    "uuid": node.uuid,
                    "mac": node.mac,
                    "firmware": node.firmware.value,
                    "state_dir": str(state),
                    "auth_file": str(self._secrets.auth_file),
                    "certificate": str(self._secrets.certificate),
                    "key": str(self._secrets.key),
                }
            )
        )
        return {
            "port": REDFISH_PORT,
            "argv": [sys.executable, "-m", "vrack.redfish_bmc", str(config)],
        }

    def _start(self, description: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(_HERE.parent)}
        # nsenter, not `ip netns exec`: that one hides the mounts of namespaces, and the hypervisor
        # deletes this one in the end.
        argv = [
            "nsenter",
            f"--net={netns.RUN / self.namespace}",
            sys.executable,
            "-m",
            "vrack.hypervisor",
            str(description),
        ]
        with (self.directory / "hypervisor.log").open("a") as log:
            self._hypervisor = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        out = self._hypervisor.stdout
        assert out is not None  # noqa: S101 - it is a pipe, see above
        ready, _, _ = select.select(
            [out], [], [], patience(_LIBVIRT_LIMIT_S if self._libvirt else _UP_LIMIT_S)
        )
        line = out.readline() if ready else ""
        answer = (
            json.loads(line)
            if line
            else {"ready": False, "error": f"see {self.directory / 'hypervisor.log'}"}
        )
        if not answer["ready"]:
            raise RackError(f"cannot bring up a rack: {answer['error']}")

    def down(self) -> None:
        """Ends everything of the rack: machines, BMCs, commands, namespace. May be called twice,
        and after a failed `up`."""
        for index in list(self._paused):
            self.resume_bmc(index)
        for command in self._commands:
            _end(command, 5.0)
        self._commands.clear()
        process, self._hypervisor = self._hypervisor, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(_DOWN_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()  # its children die with it: see metal.die_with_parent
                process.wait()
        netns.destroy(self.namespace)
        Path(self._socket).unlink(missing_ok=True)
        self._owner.unlink(missing_ok=True)

    def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        text: bool = False,
    ) -> subprocess.Popen[Any]:
        """Starts a command inside the rack's network, where br0 has 10.99.0.1. It is ended by
        `down` if it still runs."""
        command = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *argv],
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=text,
        )
        self._commands.append(command)
        return command

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Runs a command inside the rack's network to its end. Raises subprocess.TimeoutExpired; a
        failure is for the caller."""
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *argv],
            timeout=timeout_s,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def node_directory(self, index: int) -> Path:
        """Where the files of one node are."""
        return self.directory / self.nodes[index].name

    def inventory(self, images: Iterable[str] = (), *, verify_tls: bool = True) -> str:
        """The inventory of this rack for Layercake, as YAML; `images` are the names for
        defaults.images."""
        ca = self._secrets.certificate if verify_tls else None
        return yaml_inventory.inventory(self.nodes, self._secrets.password_file, ca, images)

    def machine(self, index: int) -> dict[str, Any]:
        """The truth about a machine, behind its BMC's back: {"power", "pid", "bmc_pid", "boot",
        "last_boot", "starts"}."""
        return ask(self._socket, {"op": "state", "node": self.nodes[index].name})

    def power_state(self, index: int) -> str:
        """ "on" or "off", as the machine's process is."""
        return str(self.machine(index)["power"])

    def vm_alive(self, index: int) -> bool:
        """Whether the machine runs."""
        return self.power_state(index) == "on"

    def console(self, index: int) -> str:
        """All that a machine has written to its serial console since `up`, over all its boots."""
        return (self.node_directory(index) / "console.log").read_text(errors="replace")

    def wait_console(self, index: int, marker: str, limit_s: float) -> float:
        """Waits for a text on a console; returns the seconds it took. Raises RackError with the
        console's end."""
        start = time.monotonic()
        while marker not in self.console(index):
            if time.monotonic() - start > patience(limit_s):
                tail = self.console(index)[-2000:]
                raise RackError(
                    f"cannot see {marker!r} on {self.nodes[index].name} in {limit_s:.0f} s:\n{tail}"
                )
            time.sleep(0.1)
        return time.monotonic() - start

    def kill_vm(self, index: int) -> None:
        """Kills a machine from outside, as a power supply that burns out. Its BMC is not told.
        Raises RackError if it is off."""
        pid = self.machine(index)["pid"]
        if pid is None:
            raise RackError(f"cannot kill {self.nodes[index].name}: it is off")
        os.kill(pid, signal.SIGKILL)
        if not wait_until_gone(pid, 10.0):
            raise RackError(f"cannot kill {self.nodes[index].name}: process {pid} stays")

    def reset(self, index: int) -> None:
        """A machine begins anew, as by its reset button. Its BMC is not told."""
        ask(self._socket, {"op": "power", "node": self.nodes[index].name, "want": "reset"})

    def press(self, index: int) -> None:
        """Somebody presses a machine's power button. Its BMC is not told."""
        ask(self._socket, {"op": "power", "node": self.nodes[index].name, "want": "soft"})

    def pause_bmc(self, index: int) -> None:
        """A BMC that hangs: it is there and answers nothing."""
        os.kill(self.machine(index)["bmc_pid"], signal.SIGSTOP)
        self._paused.add(index)

    def resume_bmc(self, index: int) -> None:
        """Lets a paused BMC go on."""
        self._paused.discard(index)
        os.kill(self.machine(index)["bmc_pid"], signal.SIGCONT)

    def unplug(self, index: int) -> None:
        """Pulls a machine's network cable: it never gets an answer to its DHCP."""
        netns.set_link(self.namespace, netns.tap(index), up=False)

    def plug(self, index: int) -> None:
        """Puts the cable back."""
        netns.set_link(self.namespace, netns.tap(index), up=True)

    @property
    def _secrets(self) -> RackSecrets:
        if self.secrets is None:
            raise RackError("cannot use a rack that is not up")
        return self.secrets


def _end(command: subprocess.Popen[Any], grace_s: float) -> None:
    if command.poll() is None:
        command.terminate()
        try:
            command.wait(grace_s)
        except subprocess.TimeoutExpired:
            command.kill()
    command.wait()
    for pipe in (command.stdin, command.stdout, command.stderr):
        if pipe is not None:
            pipe.close()
