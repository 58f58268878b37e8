"""iPXE boot scripts. Rendered by Jinja2: sandboxed, an undefined value is an error, and never HTML-escaped.

iPXE splits a line at spaces, expands ${settings}, and ends a command at ||, &&, ; and #. So every value is checked word by word
against a list of characters that mean nothing to it: a value is refused, not quoted, for iPXE has no quoting.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from layercake.kraken.errors import InputError
from pxe.nodes import Node, mac_text
from pxe.settings import Settings

KERNEL, INITRD, HARDWARE = "vmlinuz", "minos.img", "hardware.img"
_WORD = re.compile(r"[A-Za-z0-9_.,:=/@+%~*\[\]-]+")
_CONSOLE = re.compile(r"[A-Za-z]+[0-9]*(,[0-9]+[noe]?[78]?r?)?")
_KERNEL_LINE_MAX = 2047  # COMMAND_LINE_SIZE of x86 is 2048, the zero byte included


def word(what: str, value: str) -> str:
    """The value, if it is one word that iPXE and the kernel take as it is. Raises InputError; a token is not shown in it."""
    if not _WORD.fullmatch(value):
        shown = "its value" if what == "token" else repr(value)
        raise InputError(f"cannot write boot script: {what} must be one word of plain characters, {shown} is not",
                         hint="spaces, control characters, quotes and any of $ { } ; # & | < > \\ are not allowed")
    return value


def _words(what: str, value: str) -> list[str]:
    """The words of a value that may have several, apart by single blanks; a line break is no blank."""
    return [word(what, w) for w in value.split(" ") if w]


def _console(value: str) -> list[str]:
    if not value:
        return []
    if not _CONSOLE.fullmatch(value):
        raise InputError(f"cannot write boot script: console {value!r} is not a console", hint="such as ttyS0 or ttyS1,57600")
    serial = value.startswith(("ttyS", "ttyAMA")) and "," not in value
    return [f"console={value},115200" if serial else f"console={value}"]


def command_line(node: Node, mac: bytes, token: str, settings: Settings, now: float, initrds: Iterable[str] = (INITRD,)) -> str:
    """minOS's kernel command line. `initrds` are the names of its archives; `now` is seconds since the epoch: a node may have no
    clock. Raises InputError if a value could mean something else than itself."""
    extra = _words("kernel_args", node.kernel_args)
    if any(w.startswith("layercake.") for w in extra):
        raise InputError(f"cannot write boot script: kernel_args of {node.name} sets a layercake. word",
                         hint="those say who the node is and are written by the head alone")
    words = [
        *(f"initrd={name}" for name in initrds),  # an EFI kernel finds them by these names; a BIOS one does not mind
        f"layercake.node={word('node', node.id)}",
        f"layercake.name={word('name', node.name)}",
        f"layercake.mac={mac_text(mac)}",
        f"layercake.ip={node.ip}/{settings.prefix}",
        *([f"layercake.boot={word('boot_set', node.boot_set)}"] if node.boot_set else []),
        *([f"layercake.gateway={settings.gateway}"] if settings.gateway else []),
        *([f"layercake.dns={','.join(settings.dns)}"] if settings.dns else []),
        f"layercake.head={word('head_url', settings.head_url)}",
        f"layercake.sync={word('sync_address', settings.sync_address)}",
        f"layercake.token={word('token', token)}",
        f"layercake.time={now:.0f}",
        "panic=10",  # a node that panics starts again by itself, and its firmware then shows up in the history
        *_console(node.console),
        *extra,
    ]
    line = " ".join(words)
    if len(line) > _KERNEL_LINE_MAX:
        raise InputError(f"cannot write boot script: the kernel command line of {node.name} has {len(line)} characters, "
                         f"the kernel takes {_KERNEL_LINE_MAX}", hint="shorten kernel_args")
    return line


def initrds(directory: Path) -> tuple[str, ...]:
    """The archives of a boot set in the order that they are fetched in: minOS last, it is what a node waits for."""
    return (HARDWARE, INITRD) if (directory / HARDWARE).is_file() else (INITRD,)


def environment() -> ImmutableSandboxedEnvironment:
    """The Jinja2 environment of boot scripts."""
    return ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True,
        autoescape=False,  # a boot script is no HTML: escaping would turn & into &amp; on a kernel command line
    )


class BootScript:
    """The template, compiled once."""

    def __init__(self, settings: Settings, wall: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._wall = wall
        source = resources.files("pxe").joinpath("boot.ipxe.j2").read_text(encoding="utf-8")
        self._template = environment().from_string(source)

    def render(self, node: Node, mac: bytes, token: str) -> str:
        """The script for one boot of one node; it holds the token. Raises InputError."""
        base = word("address", self._settings.http_base) + (f"/{word('boot_set', node.boot_set)}" if node.boot_set else "")
        found = initrds(self._settings.boot_dir / node.boot_set)
        return self._template.render(
            name=word("name", node.name), base=base, kernel=KERNEL, initrds=found,
            command_line=command_line(node, mac, token, self._settings, self._wall(), found),
        )
