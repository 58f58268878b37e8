"""What TFTP gives to whom: boot programs to every node that boots, and to the path that fetches all
by TFTP (pxe.paths.grub) its own configuration and the files of its own boot set.
"""

from __future__ import annotations

import hashlib
import mmap
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from layercake.kraken.errors import InputError, Refused
from pxe import events
from pxe.nodes import Node, mac_bytes
from pxe.notes import Note
from pxe.paths import arm64, grub
from pxe.paths.boot_spec import HARDWARE, INITRD, KERNEL, spec_for
from pxe.state import BootState
from pxe.windows import Step

Content = bytes | mmap.mmap
_STEPS = {KERNEL: Step.KERNEL, HARDWARE: Step.HARDWARE, INITRD: Step.INITRD}


class TftpFiles:
    """The Gate of the TFTP server. `wall` gives seconds since the epoch."""

    def __init__(self, state: BootState, wall: Callable[[], float] = time.time) -> None:
        self._state = state
        self._wall = wall

    def may_come(self, ip: str) -> bool:
        """Whether this may be a client of ours that is not known yet."""
        return self._state.may_come(ip)

    def may_fetch(self, ip: str) -> str:
        """Why this client gets nothing now, or ""."""
        if self._state.visits(ip):
            return ""
        try:
            self._state.booting(ip)
        except Refused as refusal:
            return refusal.message
        return ""

    def own(self, ip: str, name: str) -> Content | None:
        """What only the client at this address may fetch, None if there is no such file. Raises
        Refused."""
        if self._state.visits(ip):
            return None
        kind, _, rest = name.partition("/")
        if kind == "node" and rest.endswith(".cfg"):
            return self._configuration(ip, rest.removesuffix(".cfg"))
        node, window = self._state.booting(ip)
        if arm64.takes(node) and name in arm64.BY_TFTP:
            return self._read(
                node, self._state.settings.boot_dir / node.boot_set / arm64.BY_TFTP[name]
            )
        chosen, _, file = rest.rpartition("/")
        if kind != "boot" or chosen != node.boot_set or file not in _STEPS:
            return None
        self._state.windows.fetched(window)
        return self._read(node, self._state.settings.boot_dir / chosen / file)

    def _read(self, node: Node, path: Path) -> Content | None:
        try:
            touched = path.stat()
            return _mapped(path, touched.st_ino, touched.st_mtime_ns)
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
        except ValueError:
            why = "is empty"
        self._state.recorder.note(
            Note(
                node.id,
                events.FILE_MISSING,
                f"{path} {why}",
                None,
                {"file": path.name},
                path.name,
                10.0,
            )
        )
        return None

    def _configuration(self, ip: str, text: str) -> bytes | None:
        try:
            mac = mac_bytes(text)
        except InputError:
            return None
        self._state.look_for_two(ip, mac)
        node, window = self._state.booting(ip)
        if mac not in node.macs:
            raise Refused("cannot serve this configuration: it is another node's")
        try:
            spec = spec_for(node, mac, window.token, self._state.settings, self._wall())
            body = grub.render(spec, grub.by_tftp(spec))
        except InputError as error:
            raise Refused(error.message) from error
        self._state.hand_out(node, window, mac, "configuration")
        sent = body.encode("ascii")
        window.configuration = hashlib.sha256(sent).hexdigest()
        return sent

    def began(self, ip: str, name: str) -> None:
        """A transfer is on its way."""
        if (node := self._state.nodes.by_ip(ip)) is not None and (step := _step(name)) is not None:
            self._state.began(node, step, Path(name).name)

    def going(self, ip: str, name: str, sent: int, size: int) -> None:
        """A long transfer gets on, so the boot does."""
        if (node := self._state.nodes.by_ip(ip)) is not None:
            self._state.windows.moves(node.id, self._state.clock())
            text = f"{Path(name).name}: {sent / 1e6:.1f} of {size / 1e6:.1f} MB"
            self._state.recorder.note(
                Note(
                    node.id, events.UNDER_WAY, text, None, {"file": Path(name).name, "bytes": sent}
                )
            )

    def broke(self, ip: str, name: str, sent: int, size: int, why: str) -> None:
        """The client takes no more, in the middle of it."""
        if (node := self._state.nodes.by_ip(ip)) is not None:
            text = (
                f"the transfer of {Path(name).name} broke off: {sent / 1e6:.1f} of "
                f"{size / 1e6:.1f} MB were sent ({why})"
            )
            self._state.recorder.note(
                Note(
                    node.id,
                    events.TRANSFER_BROKEN,
                    text,
                    None,
                    {"file": Path(name).name},
                    name,
                    1.0,
                )
            )

    def other(self, ip: str, name: str) -> None:
        """The client asks for a file that it was not offered."""
        if not name.startswith(grub.ASKED_IN_VAIN) and not self._state.visits(ip):
            self._state.asks_other(ip, name, "TFTP")

    def ended(self, ip: str, name: str, size: int, seconds: float) -> None:
        """The client has all of it."""
        if (node := self._state.nodes.by_ip(ip)) is not None and (step := _step(name)) is not None:
            self._state.ended(
                node, step, "boot script" if step is Step.SCRIPT else Path(name).name, size, seconds
            )


def _step(name: str) -> Step | None:
    if name.startswith("node/"):
        return Step.SCRIPT
    if name.startswith("boot/"):
        return _STEPS.get(Path(name).name)
    return None if name == grub.CONFIG else Step.NBP


@lru_cache(maxsize=16)
def _mapped(path: Path, inode: int, touched: int) -> mmap.mmap:
    """A boot file, shared by all transfers of it. A boot set never changes. Raises OSError, and
    ValueError for an empty one."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
