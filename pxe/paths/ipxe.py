"""iPXE: from the ROM of a card, or as the boot program undionly.kpxe or snponly.efi. It fetches by
HTTP, and says which card it is on."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from pxe.paths.boot_spec import KERNEL, BootSpec, environment, plain_word

BIOS_PROGRAM = "undionly.kpxe"
UEFI_PROGRAM = "snponly.efi"
_TEMPLATE = environment().from_string(
    resources.files("pxe.paths").joinpath("ipxe.j2").read_text(encoding="utf-8")
)


_NAME = "\0"
_LINE = "\1"
"""Where a node's own words are put in. They are in none of them: see plain_word and kernel_line."""


@lru_cache(maxsize=64)
def _of_boot_set(base: str, initrds: tuple[str, ...]) -> str:
    """The script of all nodes that boot the same files: a rack has one, and Jinja2 takes longer
    than all the rest."""
    return _TEMPLATE.render(
        name=_NAME, base=base, kernel=KERNEL, initrds=initrds, command_line=_LINE
    )


def render(spec: BootSpec, http_base: str) -> str:
    """The script of one boot. `http_base` is where boot files are, without a slash at the end.
    Raises InputError."""
    base = plain_word("address", http_base) + (f"/{spec.boot_set}" if spec.boot_set else "")
    # An EFI kernel finds its archives by these words; a BIOS one does not mind.
    line = " ".join((*(f"initrd={name}" for name in spec.initrds), spec.command_line))
    return _of_boot_set(base, spec.initrds).replace(_NAME, spec.name).replace(_LINE, line)
