"""What one boot of one node consists of: the same for all boot paths, each of which says it in its
own language (ipxe.py, grub.py).

What may stand in it says pxe.kernel_line, for the inventory too.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from layercake.base.text import grouped
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import Mistake
from pxe import kernel_line
from pxe.nodes import Node, mac_text
from pxe.settings import Settings
from pxe.subnet import own

KERNEL = "vmlinuz"
INITRD = "minos.img"
HARDWARE = "hardware.img"
_KERNEL_LINE_MAX = kernel_line.ROOM - len(f"initrd={HARDWARE} initrd={INITRD} ")
"""iPXE adds the names of the archives."""


def plain_word(what: str, value: str) -> str:
    """The value, if it is one word that iPXE and the kernel take as it is. Raises InputError; a
    token is not shown in it."""
    if not kernel_line.WORD.fullmatch(value):
        printed = "its value" if what == "token" else repr(value)
        raise InputError(
            f"cannot write boot script: {what} must be one word of plain characters, {printed} is "
            "not",
            hint="spaces, control characters, quotes and any of $ { } ; # & | < > \\ are not "
            "allowed",
        )
    return value


def _checked(node: Node) -> list[str]:
    """The console and the arguments of a node. Raises InputError."""
    key = "console"
    try:
        console = kernel_line.console(node.console)
        key = "kernel_args"
        words = kernel_line.arguments(node.kernel_args)
    except Mistake as mistake:
        raise InputError(
            f"cannot write boot script of {node.name}: {key}: {mistake.message}", hint=mistake.hint
        ) from None
    return [*filter(None, [console]), *words]


@dataclass(frozen=True, slots=True)
class BootSpec:
    """One boot: the node's name, the directory of its boot set on the servers ("" is boot/ itself),
    the names of its archives in the order to fetch them in, and the kernel's command line, which
    holds the token."""

    name: str
    boot_set: str
    initrds: tuple[str, ...]
    command_line: str


def spec_for(node: Node, mac: bytes, token: str, settings: Settings, now: float) -> BootSpec:
    """The boot of a node by its card `mac`. `now` is seconds since the epoch. Raises InputError."""
    archives = initrds(f"{settings.boot_dir}/{node.boot_set}")
    return BootSpec(
        plain_word("name", node.name),
        node.boot_set and plain_word("boot_set", node.boot_set),
        archives,
        command_line(node, mac, token, settings, now),
    )


def command_line(node: Node, mac: bytes, token: str, settings: Settings, now: float) -> str:
    """minOS's kernel command line. `now` is seconds since the epoch: a node may have no clock.
    Raises InputError if a value could mean something else than itself."""
    home = node.subnet or own(settings)
    arguments = [
        f"layercake.node={plain_word('node', node.id)}",
        f"layercake.name={plain_word('name', node.name)}",
        f"layercake.mac={mac_text(mac)}",
        *home.kernel_parameters(node.ip),
        *([f"layercake.boot={plain_word('boot_set', node.boot_set)}"] if node.boot_set else []),
        f"layercake.head={plain_word('head_url', home.place.head_url)}",
        f"layercake.sync={plain_word('sync_address', home.place.sync_address)}",
        f"layercake.token={plain_word('token', token)}",
        f"layercake.time={now:.0f}",
        *(["layercake.discover=1"] if node.stranger else []),
        # a node that panics starts again by itself, and its firmware then shows up in the history
        "panic=10",
        *_checked(node),
    ]
    line = " ".join(arguments)
    if node.other_heads:
        others = plain_word("other_heads", ",".join(node.other_heads))
        longer = f"{line} layercake.other_heads={others}"
        # without them it boots as well, while the head that serves this is there
        line = longer if len(longer) <= _KERNEL_LINE_MAX else line
    if len(line) > _KERNEL_LINE_MAX:
        raise InputError(
            f"cannot write boot script: the kernel command line of {node.name} has {len(line)} "
            "characters, "
            f"the kernel takes {_KERNEL_LINE_MAX}",
            hint="shorten kernel_args, or name fewer routes of its network",
        )
    return line


def initrds(directory: Path | str) -> tuple[str, ...]:
    """The archives of a boot set in the order that they are fetched in: minOS last, it is what a
    node waits for."""
    # A third of the time.
    has_hardware = os.path.isfile(f"{directory}/{HARDWARE}")  # noqa: PTH113
    return (HARDWARE, INITRD) if has_hardware else (INITRD,)


def boot_files(
    nodes: Iterable[Node], boot_dir: Path
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """The files of all boot sets that nodes have, {name on the servers: path}, and the names of
    nodes that lack one, with why and what to do."""
    files: dict[str, str] = {}
    missing: dict[str, tuple[str, str]] = {}
    for chosen, names in grouped((node.boot_set, node.name) for node in nodes).items():
        for name in (KERNEL, *initrds(boot_dir / chosen)):
            path = boot_dir / chosen / name
            if path.is_file():
                files[f"{chosen}/{name}".lstrip("/")] = str(path)
            else:
                why = (f"{path} is not there", "layercake boot build; layercake boot default")
                missing |= dict.fromkeys(names, why)
    return files, missing


def environment() -> ImmutableSandboxedEnvironment:
    """The Jinja2 environment of boot scripts: sandboxed, an undefined value is an error."""
    return ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        # a boot script is no HTML: escaping would turn & into &amp; on a kernel command line
        autoescape=False,
    )
