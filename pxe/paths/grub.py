"""GRUB under Secure Boot: the distribution's shim and GRUB, which Microsoft's and the
distribution's keys have signed, and its signed kernel. All by TFTP: the signed GRUB has no HTTP,
and no iPXE is signed.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from pxe.paths.boot_spec import KERNEL, BootSpec, environment

SHIM = "shimx64.efi"
GRUB = "grubx64.efi"
CONFIG = "grub/grub.cfg"
FILES = {SHIM: "shim/shimx64.efi.signed", GRUB: "grub/x86_64-efi-signed/grubnetx64.efi.signed"}
"""What clients ask for, and where it is below /usr/lib in the packages shim-signed and
grub-efi-amd64-signed. Shim asks for GRUB by this name."""
ASKED_IN_VAIN = ("grub/", "revocations", "shim_certificate")
"""How the names of files begin that shim and GRUB ask for and do without."""

FIRST = b"""set timeout=0
configfile (tftp,$net_default_server)/node/$net_default_mac.cfg
echo "Layercake: no boot is wanted now; this machine starts again in 10 seconds"
sleep 10
reboot
"""
"""GRUB's first configuration, the same for all: it leads to the node's own. GRUB 2.06 does not look
for that by itself."""

_TEMPLATE = environment().from_string(
    resources.files("pxe.paths").joinpath("grub.j2").read_text(encoding="utf-8")
)


def programs(library: Path) -> dict[str, bytes]:
    """The boot programs by name; none where the packages are not installed."""
    files = {name: library / place for name, place in FILES.items()}
    if not all(path.is_file() for path in files.values()):
        return {}
    return {name: path.read_bytes() for name, path in files.items()} | {CONFIG: FIRST}


def by_tftp(spec: BootSpec) -> str:
    """Where the boot set's files are for a GRUB that came by TFTP."""
    return f"(tftp,$net_default_server)/boot/{f'{spec.boot_set}/' if spec.boot_set else ''}"


def render(spec: BootSpec, base: str) -> str:
    """The configuration of one boot; `base` is where the files are, with what goes before their
    names."""
    return _TEMPLATE.render(
        name=spec.name,
        base=base,
        kernel=KERNEL,
        initrds=spec.initrds,
        command_line=spec.command_line,
    )
