"""The ImageAPI's attach and mount objects on this node: one small table, kept on disk, with counted
references.

An object is held by whoever asked for it: another object that stands on it, a container, a person
("user"). Equal descriptions share one object. When its last holder lets go it is taken away, and
then lets go of what it stood on.

The table is written before anything is done and after: an agent that was killed in between finds
what it had begun.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from imageapi.events import LAZY_UNMOUNT, REMAINS, EventSink
from imageapi.node import mount, nfs
from imageapi.node.attach.attachments import Attachments
from imageapi.spec.objects import Spec, check_mount, parse_attach, parse_mount, shown
from layercake.base.files import read_json, write_json
from layercake.kraken.errors import InputError, LayercakeError, NotFound, OperationFailed, Refused

USER = "user"
_LETTER = {"attach": "a", "mount": "m"}


@dataclass(slots=True)
class Object:
    """One object. `place` is its device or mount point, "" until it is ready; `parts` are the
    objects that it stands on."""

    id: str
    type: str
    spec: Spec
    holders: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    place: str = ""
    state: str = "creating"
    error: str = ""


class Objects:
    """The table. Its methods may be called from any thread; they take their time, one after the
    other."""

    def __init__(self, run: Path, attachments: Attachments, event: EventSink) -> None:
        self.directory = run / "objects"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file = run / "objects.json"
        self._attachments = attachments
        self._event = event
        self._lock = threading.RLock()
        self._objects: dict[str, Object] = {}
        self._counter = 0
        self._load()

    def _load(self) -> None:
        if data := read_json(self._file):
            self._counter = data["counter"]
            self._objects = {entry["id"]: Object(**entry) for entry in data["objects"]}

    def _save(self) -> None:
        write_json(
            self._file,
            {"counter": self._counter, "objects": [asdict(o) for o in self._objects.values()]},
        )

    def views(self) -> list[dict[str, Any]]:
        """All objects, JSON-ready. There are no secrets in a description."""
        with self._lock:
            return [asdict(entry) for entry in self._objects.values()]

    def view(self, name: str) -> dict[str, Any]:
        """One object, JSON-ready. Raises InputError."""
        with self._lock:
            return asdict(self._get(name))

    def _get(self, name: str) -> Object:
        if name not in self._objects:
            raise NotFound(
                f"cannot find object {name[:40]!r}: there is no such attachment or mount on this "
                "node"
            )
        return self._objects[name]

    # ---- taking hold and letting go
    # --------------------------------------------------------------------------------

    def acquire(self, kind: str, data: object, holder: str) -> str:
        """Makes an attach or mount object, or finds an equal one, and holds it for `holder`.
        Returns its id.

        Raises InputError for an unsound description, LayercakeError if it could not be made; then
        nothing is left of it.
        """
        spec = parse_attach(data) if kind == "attach" else check_mount(parse_mount(data))
        with self._lock:
            entry = self._get(spec["id"]) if "id" in spec else self._equal(kind, spec)
            if entry is None:
                entry = self._create(kind, spec, holder)
            elif entry.type != kind:
                raise InputError(
                    f"cannot use object {entry.id} as {kind}: it is of type {entry.type}"
                )
            elif holder not in entry.holders:
                entry.holders.append(holder)
            self._save()
            return entry.id

    def _equal(self, kind: str, spec: Spec) -> Object | None:
        """An object that may be shared: what can be written to by one holder is no other's
        business."""
        if spec["kind"] in ("overlay", "tmpfs"):
            return None
        return next(
            (
                o
                for o in self._objects.values()
                if o.type == kind and o.spec == spec and o.state == "ready"
            ),
            None,
        )

    def _create(self, kind: str, spec: Spec, holder: str) -> Object:
        self._counter += 1
        new = Object(f"{_LETTER[kind]}{self._counter}", kind, spec, [holder])
        self._objects[new.id] = new
        try:
            self._save()
            if kind == "attach":
                new.place = self._attachments.attach(new.id, spec)
            else:
                new.place = str(self._mount(new))
        except BaseException:
            self._destroy(new)
            raise
        new.state = "ready"
        return new

    def _mount(self, new: Object) -> Path:
        spec = new.spec
        target = self.directory / new.id
        target.mkdir(exist_ok=True)
        if spec["kind"] == "attach":
            device = self._part(new, "attach", spec["attach"])
            mount.filesystem(
                device, target, spec["fstype"], spec["options"], readonly=spec["readonly"]
            )
        elif spec["kind"] == "overlay":
            lower = [self._part(new, "mount", part) for part in spec["lower"]]
            return mount.overlay(lower, target, spec["size"])
        elif spec["kind"] == "bind":
            mount.bind(spec["source"], target, readonly=spec["readonly"])
        elif spec["kind"] == "nfs":
            nfs.mount(spec["source"], target, spec["options"], readonly=spec["readonly"])
        else:
            mount.mount(
                "tmpfs",
                target,
                "tmpfs",
                mount.MS_NOSUID | mount.MS_NODEV,
                f"mode=755,size={spec['size']}",
            )
        return target

    def _part(self, new: Object, kind: str, data: Mapping[str, Any]) -> str:
        """An object that `new` stands on; its place."""
        name = self.acquire(kind, data, new.id)
        new.parts.append(name)
        self._save()
        return self._objects[name].place

    def release(self, name: str, holder: str) -> None:
        """Lets go of an object; its last holder takes it away. Raises Refused if it is not held so,
        OperationFailed if it stays."""
        with self._lock:
            entry = self._get(name)
            if holder not in entry.holders:
                raise Refused(
                    f"cannot release {name}: it is held by {', '.join(entry.holders) or 'nobody'}",
                    hint="it goes when they let go of it",
                )
            if len(entry.holders) > 1:
                entry.holders.remove(holder)
                self._save()
            else:
                self._destroy(entry)

    def release_all(self, holder: str) -> None:
        """Lets go of everything that `holder` has. Raises OperationFailed for the first that
        stays."""
        with self._lock:
            for entry in list(self._objects.values()):
                if entry.id in self._objects and holder in entry.holders:
                    self.release(entry.id, holder)

    def _destroy(self, old: Object) -> None:
        """Takes an object away, then lets go of its parts. What cannot be taken away stays in the
        table, with its reason."""
        old.state = "removing"
        self._save()
        try:
            if old.type == "mount":
                self._unmount(old)
            else:
                self._attachments.detach(old.id, old.spec, old.place)
        except LayercakeError as error:
            old.state = "stuck"
            old.error = str(error)
            self._save()
            raise
        del self._objects[old.id]
        self._save()
        self.release_all(old.id)

    def _unmount(self, old: Object) -> None:
        """Looks at nothing inside: that may be on a machine that does not answer."""
        top = self.directory / old.id
        take = mount.unmount_away if old.spec["kind"] in ("nfs", "attach") else mount.unmount
        for target in (top / "root", top / "rw", top):
            if mount.is_mounted(target):
                if not take(target):
                    self._event(
                        LAZY_UNMOUNT,
                        f"{old.id} ({shown(old.spec)}) was busy, or its server does not answer; it "
                        "was "
                        "detached lazily",
                    )
                if mount.is_mounted(target):
                    raise OperationFailed(
                        f"cannot remove mount {old.id}: {target} is still mounted"
                    )
        for directory in (top / "root", top / "rw", top):
            if directory.is_dir():
                directory.rmdir()

    # ---- after an agent's start
    # ------------------------------------------------------------------------------------

    def recover(self, holders: set[str]) -> None:
        """Takes away what an earlier agent only began, and what nobody is left to hold. `holders`
        are the containers."""
        with self._lock:
            for entry in reversed(list(self._objects.values())):
                if entry.id not in self._objects:
                    continue
                known = holders | {USER} | self._objects.keys()
                entry.holders = [h for h in entry.holders if h in known]
                if entry.state == "ready" and entry.holders:
                    if entry.type == "attach":
                        self._attachments.resume(entry.id, entry.spec)
                    continue
                try:
                    self._destroy(entry)
                except LayercakeError as error:
                    self._event(REMAINS, f"cannot remove object {entry.id}: {error}")
            self._save()

    def place(self, name: str) -> str:
        """An object's device or mount point."""
        with self._lock:
            return self._get(name).place
