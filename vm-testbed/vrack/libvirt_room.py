"""The same rack as libvirt domains: libvirtd switches the machines; virtualbmc (IPMI) and
sushy-emulator's libvirt driver (Redfish) are their BMCs. All of it is other people's software, set
up as they say; here are its configurations, and a libvirtd of our own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from patience import patience

from vrack.metal import end, spawn
from vrack.qemu import OVMF_CODE, OVMF_VARS, QEMU
from vrack.secrets import RackSecrets
from vrack.spec import BRIDGE, IPMI_PORT, REDFISH_PORT, USERNAME, Firmware, VmSpec

TOOLS = (
    Path(
        os.environ.get("VRACK_LIBVIRT_TOOLS", Path(__file__).resolve().parents[2] / ".venv-libvirt")
    )
    / "bin"
)
"""Where virtualbmc and sushy-emulator are, with the bindings of libvirt: `make demo RACK=libvirt`
puts them there."""
_HERE = Path(__file__).resolve().parent
_UP_LIMIT_S = 120.0
_FIRST_CONTROL_PORT = 50900
"""virtualbmc's daemon listens for its own command line on loopback; nobody uses that here."""
_NETWORK = f"<network><name>rack</name><forward mode='bridge'/><bridge name='{BRIDGE}'/></network>"


def missing_tools() -> Mapping[str, str]:
    """{what is missing: where it comes from}."""
    wanted = {
        "/usr/sbin/libvirtd": "libvirt-daemon",
        "/usr/sbin/virtlogd": "libvirt-daemon",
        "virsh": "libvirt-clients",
        "tini": "tini",
        str(TOOLS / "vbmcd"): "virtualbmc",
        str(TOOLS / "sushy-emulator"): "sushy-tools",
    }
    return {tool: package for tool, package in wanted.items() if shutil.which(tool) is None}


def uri(directory: Path) -> str:
    """How libvirt's clients reach the libvirtd over a directory."""
    return f"qemu+unix:///system?socket={directory / 'run/libvirt-sock'}"


def domain(node: VmSpec, home: Path, accel: str) -> str:
    """A machine as libvirt has it: no disk, the network alone to boot from, its console in a file
    over all boots."""
    kvm, uefi = accel == "kvm", node.firmware is Firmware.UEFI
    # sushy-emulator leaves `nvram` out when it sets the boot mode: libvirt makes one of the
    # firmware's template then.
    flash = (
        f"<loader readonly='yes' type='pflash'>{OVMF_CODE}</loader><nvram template='{OVMF_VARS}'/>"
        if uefi
        else ""
    )
    # As QEMU's machines have it (qemu.py, EMULATED).
    slow = "".join(f"<feature policy='disable' name='{name}'/>" for name in ("erms", "la57"))
    cpu = "<cpu mode='host-passthrough'/>" if kvm else f"<cpu mode='maximum'>{slow}</cpu>"
    return f"""<domain type='{"kvm" if kvm else "qemu"}'>
  <name>{escape(node.name)}</name><uuid>{node.uuid}</uuid><memory unit='MiB'>{node.memory_mib}</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>{flash}<boot dev='network'/><bios useserial='yes' rebootTimeout='5000'/></os>
  <features><acpi/><apic/></features>{cpu}
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/{QEMU}</emulator>
    <interface type='network'><mac address='{node.mac}'/><source network='rack'/><model type='virtio'/></interface>
    <serial type='file'><source path='{escape(str(home / "console.log"))}' append='on'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
"""


def ipmi(node: VmSpec, home: Path, index: int, secrets: RackSecrets, libvirt: Path) -> list[str]:
    """Writes what virtualbmc's daemon needs for one node, and returns its argv. It serves what it
    finds in its directory; its command line would show the password."""
    place = home / "bmc"
    shutil.rmtree(place, ignore_errors=True)
    (place / "vbmc" / node.name).mkdir(parents=True, mode=0o700)
    _write(
        place / "vbmc" / node.name / "config",
        [
            "[VirtualBMC]",
            f"domain_name = {node.name}",
            f"username = {USERNAME}",
            f"password = {secrets.password}",
            f"address = {node.bmc_address}",
            f"port = {IPMI_PORT}",
            f"libvirt_uri = {uri(libvirt)}",
            "active = True",
        ],
    )
    config = _write(
        place / "vbmc.conf",
        [
            "[default]",
            f"config_dir = {place / 'vbmc'}",
            f"pid_file = {place / 'pid'}",
            f"server_port = {_FIRST_CONTROL_PORT + index}",
        ],
    )
    return ["env", f"VIRTUALBMC_CONFIG={config}", str(TOOLS / "vbmcd"), "--foreground"]


def redfish(node: VmSpec, home: Path, secrets: RackSecrets, libvirt: Path) -> list[str]:
    """Writes what sushy-emulator needs to be one node's BMC, which shows that node alone, and
    returns its argv."""
    place = home / "bmc"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    settings = {
        "SUSHY_EMULATOR_LIBVIRT_URI": uri(libvirt),
        "SUSHY_EMULATOR_ALLOWED_INSTANCES": [node.uuid],
        "SUSHY_EMULATOR_AUTH_FILE": str(secrets.auth_file),
        "SUSHY_EMULATOR_SSL_CERT": str(secrets.certificate),
        "SUSHY_EMULATOR_SSL_KEY": str(secrets.key),
        "SUSHY_EMULATOR_STATE_DIR": str(place),
        "SUSHY_EMULATOR_FEATURE_SET": "full",
        "SUSHY_EMULATOR_BOOT_LOADER_MAP": {
            "UEFI": {"x86_64": str(OVMF_CODE)},
            "Legacy": {"x86_64": None},
        },
    }
    config = _write(
        place / "sushy.conf", [f"{name} = {value!r}" for name, value in settings.items()]
    )
    return [
        str(TOOLS / "sushy-emulator"),
        "--config",
        str(config),
        "--interface",
        node.bmc_address,
        "--port",
        str(REDFISH_PORT),
    ]


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n")
    return path


class LibvirtRoom:
    """A libvirtd of our own with these machines, which are off."""

    def __init__(self, directory: Path, accel: str, domains: Sequence[str]) -> None:
        self._directory, self._accel, self._domains = directory, accel, domains
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and defines the machines. Raises RuntimeError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._directory / "libvirtd.log"
        more = [] if self._accel == "kvm" else ["no-kvm"]
        self._process = spawn([str(_HERE / "libvirtd.sh"), str(self._directory), *more], log)
        until = time.monotonic() + patience(_UP_LIMIT_S)
        while self._virsh("version").returncode != 0:
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(
                    f"cannot start libvirtd:\n{log.read_text(errors='replace')[-1000:]}"
                )
            time.sleep(0.2)
        self._define("net", _NETWORK)
        self._must("net-start", "rack")
        for xml in self._domains:
            self._define("", xml)

    def stop(self) -> None:
        """Pulls the plug of all machines, and ends libvirtd."""
        if self._process is not None:
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # it hangs: its machines end with the rack's namespace
                for name in self._virsh("list", "--name").stdout.split():
                    self._virsh("destroy", name)
            end(self._process, 10.0)

    def _define(self, kind: str, xml: str) -> None:
        path = self._directory / "define.xml"
        path.write_text(xml)
        self._must("net-define" if kind else "define", str(path))

    def _must(self, *words: str) -> None:
        done = self._virsh(*words)
        if done.returncode != 0:
            raise RuntimeError(
                f"cannot set up libvirt: virsh {' '.join(words)}: {done.stderr.strip()}"
            )

    def _virsh(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["virsh", "-q", "-c", uri(self._directory), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
