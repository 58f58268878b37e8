"""QEMU's command line for one machine, and whether KVM can be used."""

from __future__ import annotations

import functools
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from vrack.serial_line import SOCKET
from vrack.spec import INBAND_PORT, Firmware, NicRom, VmSpec

QEMU, QEMU_ARM = "qemu-system-x86_64", "qemu-system-aarch64"
OVMF_CODE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
OVMF_VARS = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
SECURE_CODE, SECURE_VARS = (
    Path("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"),
    Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
)
"""The one that keeps its variables safe, and a store with Microsoft's keys in it and Secure Boot
on."""
AAVMF_CODE, AAVMF_VARS = (
    Path("/usr/share/AAVMF/AAVMF_CODE.fd"),
    Path("/usr/share/AAVMF/AAVMF_VARS.fd"),
)
"""UEFI for aarch64."""

# mov al, 0x10; mov dx, 0xf4; out dx, al; hlt: tells isa-debug-exit to end QEMU with status 0x10 <<
# 1 | 1.
_PROBE_SECTOR = b"\xb0\x10\xba\xf4\x00\xee\xf4".ljust(510, b"\0") + b"\x55\xaa"
_PROBE_STATUS = 0x10 << 1 | 1
_PROBE_LIMIT_S = 60.0
EMULATED = ("-accel", "tcg,thread=multi", "-cpu", "max,erms=off,fsrm=off,la57=off")
"""The emulator, and all that its processor can do but what makes a boot a sixth longer: with erms
and fsrm the kernel and the C library copy and clear memory byte by byte, which a processor does in
one go and the emulator does not; and la57 adds a level to each walk of the page tables."""
_SLOWER = 5.0
"""KVM that takes so many times as long as the emulator is none: where nested virtualisation is half
there, it does what the processor could not, step by step, and fails at the next firmware."""


def probe_s(accel: str, limit_s: float = _PROBE_LIMIT_S) -> float:
    """The seconds in which a machine under this accelerator gets through its firmware and runs a
    boot sector; infinite if it does not within `limit_s` seconds."""
    with tempfile.NamedTemporaryFile(suffix=".img") as disk:
        disk.write(_PROBE_SECTOR)
        disk.flush()
        argv = [
            QEMU,
            "-M",
            "pc",
            "-accel",
            accel,
            "-m",
            "32",
            "-display",
            "none",
            "-nodefaults",
            "-no-user-config",
            "-drive",
            f"if=floppy,format=raw,file={disk.name}",
            "-boot",
            "a",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=1",
        ]
        start = time.monotonic()
        try:
            done = subprocess.run(
                argv, timeout=limit_s, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except subprocess.TimeoutExpired:
            return math.inf
    return time.monotonic() - start if done.returncode == _PROBE_STATUS else math.inf


@functools.cache
def pick_accel(wanted: str = "") -> str:
    """ "kvm" if a probe boot under it takes not much longer than under the emulator, else "tcg".
    `wanted` (or the variable VRACK_ACCEL) decides without a probe.

    That /dev/kvm opens proves nothing, nor that one boot ends under it: nested virtualisation may
    be half there.
    """
    wanted = wanted or os.environ.get("VRACK_ACCEL", "")
    if wanted:
        return wanted
    if not Path("/dev/kvm").exists():
        return "tcg"
    emulated = min(probe_s("tcg"), probe_s("tcg"))  # the first also reads the program from its disk
    return "kvm" if probe_s("kvm", min(_SLOWER * emulated, _PROBE_LIMIT_S)) < math.inf else "tcg"


def command_line(node: VmSpec, directory: Path, tap: str, accel: str) -> list[str]:
    """The argv that runs the machine; its files live in `directory`. QMP is on standard input and
    output.

    The console is opened for appending, so that the file tells the story over all boots. SeaBIOS
    tries again 5 s after a boot failed; OVMF goes through its boot entries again by itself.
    """
    rom = ",romfile=" if node.nic_rom is NicRom.FIRMWARE else ""
    argv = [
        *_machine(node, accel),
        "-name",
        node.name,
        "-uuid",
        node.uuid,
        "-m",
        str(node.memory_mib),
        "-display",
        "none",
        "-nodefaults",
        "-no-user-config",
        "-chardev",
        _console(node, directory),
        "-serial",
        "chardev:console",
        "-qmp",
        "stdio",
        "-netdev",
        f"tap,id=net0,ifname={tap},script=no,downscript=no",
        "-device",
        f"{node.nic},netdev=net0,mac={node.mac},bootindex=1{rom}",
        "-boot",
        "reboot-timeout=5000",
        *node.more,
    ]
    if node.inband:
        argv += [
            "-chardev",
            f"socket,id=kcs,host={node.bmc_address},port={INBAND_PORT},reconnect=1",
            "-device",
            "ipmi-bmc-extern,id=bmc,chardev=kcs",
            "-device",
            "isa-ipmi-kcs,bmc=bmc",
        ]
    if node.firmware is Firmware.UEFI:
        code, _ = _flash(node)
        argv += [
            "-drive",
            f"if=pflash,format=raw,unit=0,readonly=on,file={code}",
            "-drive",
            f"if=pflash,format=raw,unit=1,file={directory / 'vars.fd'}",
        ]
    if node.secure_boot:
        argv += [
            "-global",
            "driver=cfi.pflash01,property=secure,value=on",
            "-global",
            "ICH9-LPC.disable_s3=1",
        ]
    return argv


def _console(node: VmSpec, directory: Path) -> str:
    """Where the serial console goes: into a file, and with `sol` to the BMC too."""
    log = directory / "console.log"
    if not node.sol:
        return f"file,id=console,path={log},append=on"
    return f"socket,id=console,path={directory / SOCKET},reconnect=1,logfile={log},logappend=on"


def _machine(node: VmSpec, accel: str) -> tuple[str, ...]:
    """The emulator, and the kind of machine; an aarch64 one is always emulated in full, by a
    processor without the pointer authentication that takes half the time there."""
    if node.arch == "aarch64":
        return (QEMU_ARM, "-M", "virt", "-accel", "tcg,thread=multi", "-cpu", "cortex-a72")
    processor = ("-accel", "kvm", "-cpu", "host") if accel == "kvm" else EMULATED
    return (QEMU, "-M", f"q35,graphics=off{',smm=on' if node.secure_boot else ''}", *processor)


def _flash(node: VmSpec) -> tuple[Path, Path]:
    """The firmware, and the store of variables to begin with."""
    if node.arch == "aarch64":
        return AAVMF_CODE, AAVMF_VARS
    return (SECURE_CODE, SECURE_VARS) if node.secure_boot else (OVMF_CODE, OVMF_VARS)


def prepare_files(node: VmSpec, directory: Path) -> None:
    """Makes what the machine needs on disk: an empty console file, and for UEFI a variable store of
    its own."""
    (directory / "console.log").touch()
    if node.firmware is Firmware.UEFI:
        shutil.copyfile(_flash(node)[1], directory / "vars.fd")


def missing_tools(nodes: tuple[VmSpec, ...]) -> Mapping[str, str]:
    """{what is missing: the package that has it} for these machines."""
    wanted = {QEMU: "qemu-system-x86", "ip": "iproute2", "nsenter": "util-linux"}
    if any(node.bmc.value == "ipmi" for node in nodes):
        wanted["ipmi_sim"] = "openipmi"
    if any(node.arch == "aarch64" for node in nodes):
        wanted[QEMU_ARM] = "qemu-system-arm"
    missing = {tool: package for tool, package in wanted.items() if shutil.which(tool) is None}
    packages = {OVMF_CODE: "ovmf", SECURE_CODE: "ovmf", AAVMF_CODE: "qemu-efi-aarch64"}
    codes = {_flash(node)[0] for node in nodes if node.firmware is Firmware.UEFI}
    return missing | {str(code): packages[code] for code in codes if not code.exists()}
