"""The kinds of attach objects: how each becomes a block device and goes away again.

Every step can be repeated: an agent that was killed in the middle detaches what it had begun by the
object's name.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from imageapi.events import EventSink, unheard
from imageapi.node.attach import loop, rbd
from imageapi.node.attach.fetch import Fetch, fetch
from imageapi.node.attach.rbd import Secret, no_secret
from imageapi.spec.attachment import parse_rbd
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec
from imageapi.spec.objects import Spec
from layercake.kraken.errors import OperationFailed

if TYPE_CHECKING:
    from imageapi.node.attach.iscsi_sessions import IscsiSessions


class Attachments:
    """Attaches and detaches. `run` is where fetched files are kept."""

    def __init__(
        self, run: Path, open_url: Fetch, secret: Secret = no_secret, event: EventSink = unheard
    ) -> None:
        self.run = run
        self._blobs = run / "objects-blobs"
        self._open_url = open_url
        self._secret = secret
        self._event = event
        self._sessions: IscsiSessions | None = None

    def attach(self, name: str, spec: Spec) -> str:
        """The device's path. Raises LayercakeError."""
        kind = spec["kind"]
        if kind == "local":
            from imageapi.node.attach import disks

            return (
                disks.find(spec["disk"], spec["partition"])
                if "disk" in spec
                else disks.device(spec["path"])
            )
        if kind == "loopback":
            return self._loop(name, Path(spec["path"]), readonly=spec["readonly"])
        if kind == "http":
            self._blobs.mkdir(exist_ok=True)
            image = ImageSpec(name, spec["digest"], spec["size"], spec["url"], ContainerSpec())
            return self._loop(name, fetch(image, self._blobs, self._open_url), readonly=True)
        if kind == "rbd":
            source = parse_rbd(spec)
            return rbd.attach(source, self._secret(source.secret))
        if kind == "nbd":
            from imageapi.node.attach import (
                nbd,
            )  # only on nodes that use it: a node's start has no time for it

            return nbd.attach(
                spec["host"],
                spec["port"],
                spec["export"],
                name=self._tag(name),
                readonly=spec["readonly"],
            )
        return self._iscsi_sessions.attach(name, spec)

    @property
    def _iscsi_sessions(self) -> IscsiSessions:
        """Looks after iSCSI sessions."""
        if self._sessions is None:
            from imageapi.node.attach.iscsi_sessions import IscsiSessions

            self._sessions = IscsiSessions(self._key, self._event)
        return self._sessions

    def resume(self, name: str, spec: Spec) -> None:
        """An earlier agent has attached this: goes on to look after it."""
        if spec["kind"] == "iscsi":
            self._iscsi_sessions.add(name, spec)

    def _key(self, spec: Spec) -> bytes:
        """The secret of a target's user, if there is one."""
        return self._secret(spec["secret"]) if "secret" in spec else b""

    def detach(self, name: str, spec: Spec, device: str) -> None:
        """Takes a device away; one that is not there is fine, also if it was only begun (device
        ""). Raises OperationFailed."""
        kind = spec["kind"]
        if kind in ("loopback", "http"):
            for loop_device in loop.find(self._tag(name)):
                loop.detach(loop_device)
        if kind == "http":
            for file in self._blobs.glob(f"{spec['digest'].partition(':')[2]}.*"):
                file.unlink(missing_ok=True)
        elif kind == "rbd":
            rbd.detach(parse_rbd(spec))
        elif kind == "nbd":
            from imageapi.node.attach import nbd

            nbd.detach(self._tag(name), device)
        elif kind == "iscsi":
            self._iscsi_sessions.detach(name, spec)

    def _tag(self, name: str) -> str:
        """Marks a device as this agent's: several agents may run on one machine."""
        return f"lc-{hashlib.blake2b(str(self.run).encode(), digest_size=6).hexdigest()}-{name}"

    def _loop(self, name: str, file: Path, *, readonly: bool) -> str:
        if not file.is_file():
            raise OperationFailed(f"cannot attach {file}: there is no such file on this node")
        flags = loop.LO_FLAGS_READ_ONLY if readonly else 0
        device, handle = loop.attach(file, flags=flags, tag=self._tag(name))
        os.close(handle)
        return device
