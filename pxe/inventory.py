"""What a node's inventory says of its boot: the keys, and what each may hold.

Kernel arguments end up in boot scripts and on a command line, so they are refused unless they are
harmless there.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from layercake.base.text import show
from layercake.moduleapi.fields import LABEL, Check, Mistake, number, text
from layercake.moduleapi.module import NAME, NodePart, Traits, Unique
from layercake.moduleapi.network import Network
from pxe import kernel_line
from pxe.dns_settings import HEAD

MAX_ALIASES = 16
MAX_ALIAS = 190
UEFI = "uefi"


def kernel_args(value: object) -> str:
    """Kernel arguments: one line that means the same in an iPXE script, in a GRUB script and to the
    kernel."""
    line = "" if value is None else text(value)
    if len(line) > kernel_line.MOST:
        raise Mistake(f"{len(line)} characters of kernel arguments, at most {kernel_line.MOST} fit")
    return " ".join(kernel_line.arguments(line))


def console(value: object) -> str:
    """The kernel's console device."""
    plain = text(value)
    if not plain:
        raise Mistake(f"{show(plain)} is not a console", "such as ttyS0 or ttyS0,115200n8")
    kernel_line.console(plain)
    return plain


_BOOT_TIMEOUT = number(10, 3600, "seconds", "the setting boot.join_s is the default", kind=float)


def boot_timeout(value: object) -> float | None:
    """Seconds from power-on to join: 10 to 3600, or nothing."""
    return None if value is None else _BOOT_TIMEOUT(value)


def aliases(value: object) -> tuple[str, ...]:
    """Other names of a node: one, or a list."""
    names = tuple(map(_alias, value if isinstance(value, list) else [value]))
    if len(names) > MAX_ALIASES:
        raise Mistake(f"{len(names)} aliases, a node has {MAX_ALIASES} at most")
    if twice := [name for name in names if names.count(name) > 1]:
        raise Mistake(f"the alias {show(twice[0])} stands there twice")
    return names


def _alias(value: object) -> str:
    name = text(value)
    if (
        not all(LABEL.fullmatch(label) for label in name.split("."))
        or len(name) > MAX_ALIAS
        or not re.search("[a-z]", name)
    ):
        raise Mistake(
            f"{show(name)} is not a name",
            "lower-case letters, digits and inner hyphens, with dots between labels",
        )
    if name in (HEAD, "localhost"):
        raise Mistake(
            f"{show(name)} cannot be an alias", f"{HEAD} is the head, localhost each machine itself"
        )
    return name


def suits(boot: Boot, node: Traits) -> None:
    """Whether a node can boot so. Raises Mistake for a key that would have no effect, and for a
    boot that there is no way for."""
    size = len(boot.kernel_args) + _size(node.network)
    if size > kernel_line.ROOM - kernel_line.OURS:
        raise Mistake(
            f"its kernel_args and the servers and routes of its network have {size} characters; a "
            f"kernel's command line has room for {kernel_line.ROOM - kernel_line.OURS} of them",
            "shorten kernel_args, or name fewer routes",
            "kernel_args",
        )
    if boot.secure_boot and node.firmware != UEFI:
        raise Mistake(
            f"secure_boot is for UEFI, and its firmware is {node.firmware}: it would have no "
            "effect",
            "write firmware: uefi, or put secure_boot into a group of those nodes that it is for",
            "secure_boot",
        )
    if ":" in node.ip and boot.secure_boot:
        raise Mistake(
            f"there is no Secure Boot by IPv6, and {node.ip} is its only address",
            "give it an IPv4 address, or leave secure_boot out",
            "secure_boot",
        )
    if ":" in node.ip and node.firmware != UEFI:
        raise Mistake(
            f"BIOS boots by IPv4 alone, and {node.ip} is its only address",
            "write firmware: uefi, or give it an IPv4 address",
        )


def _size(network: Network | None) -> int:
    """Characters of what a network adds to the command line of a node's kernel."""
    if network is None:
        return 0
    routes = (f"{target}@{router}" for target, router in network.routes.items())
    words = (*network.dns, *network.ntp, *routes, network.domain or "")
    return sum(len(word) + 1 for word in words)


def unique(boot: Boot) -> tuple[Unique, ...]:
    """An alias is of one node, and no node's name."""
    return tuple(Unique(NAME, alias, alias, "aliases") for alias in boot.aliases)


class Boot(NodePart, frozen=True, kw_only=True, omit_defaults=True):
    """How a node boots."""

    console: Annotated[
        str, Check(console), Meta(description="The kernel's console, and perhaps its speed.")
    ] = "ttyS0"
    kernel_args: Annotated[
        str, Check(kernel_args), Meta(description="More arguments for minOS's kernel.")
    ] = ""
    aliases: Annotated[
        tuple[str, ...],
        Check(aliases, own=True),
        Meta(description="More names of the node, in the head's DNS (boot.dns): one, or a list."),
    ] = ()
    secure_boot: Annotated[
        bool,
        Meta(
            description="Whether its UEFI runs signed programs only: it boots by shim and GRUB "
            "then, and a Debian kernel."
        ),
    ] = False
    card_ipxe: Annotated[
        bool,
        Meta(
            description="Whether the iPXE is used that its network card has. If not, that loads "
            "the head's first: for cards whose own "
            "is old or faulty."
        ),
    ] = True
    boot_timeout: Annotated[
        float | None,
        Check(boot_timeout),
        Meta(
            description="Seconds from power-on to the agent's join, before the boot counts as "
            "failed; the setting boot.join_s if not "
            "given. A node whose usual time is known is given less."
        ),
    ] = None
