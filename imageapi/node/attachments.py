"""The kinds of attach objects: how each becomes a block device and goes away again.

Every step can be repeated: an agent that was killed in the middle detaches what it had begun by the object's name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from imageapi.node import attach as images
from imageapi.node import rbd
from imageapi.node.objectspec import Spec
from imageapi.node.spec import ContainerSpec, ImageSpec
from layercake.kraken.errors import OperationFailed

ISCSI_TIMEOUT, ISCSI_WAIT = 60.0, 15.0
Secret = Callable[[str], bytes]
"""The key that the head hands out under a name. Raises LayercakeError."""


def no_secret(name: str) -> bytes:
    """For a node that has no head to ask."""
    raise OperationFailed(f"cannot get the secret {name}: there is no head to ask")


class Attachments:
    """Attaches and detaches (imageapi.node.objects.Attachments). `run` is where fetched files are kept."""

    def __init__(self, run: Path, open_url: images.Fetch, secret: Secret = no_secret) -> None:
        self.run = run
        self._blobs = run / "objects-blobs"
        self._open_url = open_url
        self._secret = secret

    def attach(self, name: str, spec: Spec) -> str:
        """The device's path. Raises LayercakeError."""
        kind = spec["kind"]
        if kind == "local":
            if not Path(spec["path"]).is_block_device():
                raise OperationFailed(f"cannot attach {spec['path']}: there is no such block device on this node")
            return str(spec["path"])
        if kind == "loopback":
            return self._loop(name, Path(spec["path"]), readonly=spec["readonly"])
        if kind == "http":
            self._blobs.mkdir(exist_ok=True)
            image = ImageSpec(name, spec["digest"], spec["size"], spec["url"], ContainerSpec())
            return self._loop(name, images.fetch(image, self._blobs, self._open_url), readonly=True)
        if kind == "rbd":
            source = rbd.parse(spec)
            return rbd.attach(source, self._secret(source.secret))
        if kind == "nbd":
            from imageapi.node import nbd  # only on nodes that use it: a node's start has no time for it

            return nbd.attach(spec["host"], spec["port"], spec["export"], name=self._tag(name), readonly=spec["readonly"])
        return iscsi_attach(spec["portal"], spec["target"], spec["lun"])

    def detach(self, name: str, spec: Spec, device: str) -> None:
        """Takes a device away, also one that was only begun. Raises OperationFailed."""
        kind = spec["kind"]
        if kind in ("loopback", "http"):
            for found in images.find_loops(self._tag(name)):
                images.detach_loop(found)
        if kind == "http":
            for file in self._blobs.glob(f"{spec['digest'].partition(':')[2]}.*"):
                file.unlink(missing_ok=True)
        elif kind == "rbd":
            rbd.detach(rbd.parse(spec))
        elif kind == "nbd":
            from imageapi.node import nbd

            nbd.detach(self._tag(name), device)
        elif kind == "iscsi":
            iscsi_detach(spec["portal"], spec["target"])

    def _tag(self, name: str) -> str:
        """Marks a device as this agent's: several agents may run on one machine."""
        return f"lc-{hashlib.blake2b(str(self.run).encode(), digest_size=6).hexdigest()}-{name}"

    def _loop(self, name: str, file: Path, *, readonly: bool) -> str:
        if not file.is_file():
            raise OperationFailed(f"cannot attach {file}: there is no such file on this node")
        flags = images.LO_FLAGS_READ_ONLY if readonly else 0
        device, handle = images.attach_loop(file, flags=flags, tag=self._tag(name))
        os.close(handle)
        return device


def _iscsiadm(*arguments: str) -> str:
    try:
        done = subprocess.run(["iscsiadm", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=ISCSI_TIMEOUT)
    except FileNotFoundError:
        raise OperationFailed("cannot attach by iSCSI: iscsiadm is not on this node",
                              hint="open-iscsi is not part of minOS; use rbd or nbd, or add it to the node's image") from None
    except subprocess.TimeoutExpired:
        raise OperationFailed(f"cannot attach by iSCSI: iscsiadm did not answer for {ISCSI_TIMEOUT:.0f} s") from None
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        raise OperationFailed(f"cannot attach by iSCSI: {text[-300:] or f'iscsiadm exited with {done.returncode}'}")
    return text


def _iscsi_device(target: str, lun: int) -> str:
    """The device of a target's unit by sysfs, "" if it is not there."""
    for session in Path("/sys/class/iscsi_session").glob("session*"):
        if (session / "targetname").read_text().strip() == target:
            for block in (session / "device").glob(f"target*/*:{lun}/block/*"):
                return f"/dev/{block.name}"
    return ""


def iscsi_attach(portal: str, target: str, lun: int) -> str:
    """Logs in to a target by open-iscsi and waits for its device. Raises OperationFailed."""
    if not (found := _iscsi_device(target, lun)):
        _iscsiadm("-m", "discovery", "-t", "sendtargets", "-p", portal)
        _iscsiadm("-m", "node", "-T", target, "-p", portal, "--login")
    deadline = time.monotonic() + ISCSI_WAIT
    while not (found := found or _iscsi_device(target, lun)):
        if time.monotonic() > deadline:
            iscsi_detach(portal, target)
            raise OperationFailed(f"cannot attach {target} lun {lun}: it did not appear in {ISCSI_WAIT:.0f} s")
        time.sleep(0.05)
    return found


def iscsi_detach(portal: str, target: str) -> None:
    """Logs out, if there is a session. Raises OperationFailed."""
    sessions = Path("/sys/class/iscsi_session").glob("session*/targetname")
    if any(file.read_text().strip() == target for file in sessions):
        _iscsiadm("-m", "node", "-T", target, "-p", portal, "--logout")
