"""Container objects: containers that the head asks a node for by themselves, beside its image set.

Each stands on a mount object that it holds, and runs once: created, running, stopping, exited (with
0) or dead. What has to be kept running, rolled and healed belongs into the image set. The table is
on disk, so an agent that starts anew goes on with what runs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from imageapi.node import tree
from imageapi.node.container import oci
from imageapi.node.container.process import NO_PROCESS, Process, alive
from imageapi.node.container.runtime import Runtime
from imageapi.node.objects.objects import Objects
from imageapi.spec.container import CONTAINER_FIELDS, ContainerSpec, parse_container
from imageapi.spec.fields import fail
from imageapi.spec.names import NAME
from layercake.base.files import read_json, write_json
from layercake.kraken.errors import NotFound, Refused

STATES = ("created", "running", "exited")


@dataclass(slots=True)
class Entry:
    """One container object. `status` is its init's exit status, None while it runs or if nobody
    knows."""

    id: str
    name: str
    container: dict[str, Any]
    parts: list[str] = field(default_factory=list)
    state: str = "creating"
    pid: int = 0
    started: int = 0
    status: int | None = None

    @property
    def process(self) -> Process:
        """Its init."""
        return Process(self.pid, self.started)

    @property
    def spec(self) -> ContainerSpec:
        """How it runs."""
        return parse_container(self.container)


class Containers:
    """The table. `runtime` is one of its own, beside that of the image set. Any thread may call."""

    def __init__(self, run: Path, runtime: Runtime, objects: Objects) -> None:
        self.runtime = runtime
        self._objects = objects
        self._file = run / "container-objects.json"
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._counter = 0
        if data := read_json(self._file):
            self._counter = data["counter"]
            self._entries = {entry["id"]: Entry(**entry) for entry in data["containers"]}

    def _save(self) -> None:
        write_json(
            self._file,
            {"counter": self._counter, "containers": [asdict(e) for e in self._entries.values()]},
        )

    def holders(self) -> set[str]:
        """The containers that hold mounts."""
        with self._lock:
            return set(self._entries)

    def recover(self) -> None:
        """Removes what an earlier agent only began. Raises LayercakeError if something stays."""
        with self._lock:
            for entry in list(self._entries.values()):
                if entry.state == "creating":
                    self._remove(entry)

    def _get(self, name: str) -> Entry:
        if name not in self._entries:
            raise NotFound(
                f"cannot find container object {name[:40]!r}: there is none of that id on this node"
            )
        return self._refresh(self._entries[name])

    def _refresh(self, entry: Entry) -> Entry:
        """Finds out whether it has ended by itself."""
        if entry.state == "running" and not alive(entry.process):
            entry.status = self.runtime.exit_status(entry.process)
            entry.state = "exited" if entry.status == 0 else "dead"
            self._save()
        return entry

    def views(self) -> list[dict[str, Any]]:
        """All of them, JSON-ready."""
        with self._lock:
            return [asdict(self._refresh(entry)) for entry in self._entries.values()]

    def view(self, name: str) -> dict[str, Any]:
        """One of them. Raises InputError."""
        with self._lock:
            return asdict(self._get(name))

    def log(self, name: str, lines: int) -> str:
        """The last lines of its output. Raises InputError."""
        with self._lock:
            self._get(name)
        return self.runtime.tail(name, lines)

    def create(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Makes one from {"name", "mount": M or {"id"}, "state": "created" or "running"} and the
        fields of a container.

        Raises InputError, or LayercakeError if it could not be made; then nothing is left of it.
        """
        for key in data:
            if key not in ("name", "mount", "state", *CONTAINER_FIELDS):
                raise fail(
                    "container object", key, f"name, mount, state, {', '.join(CONTAINER_FIELDS)}"
                )
        name = data.get("name")
        state = data.get("state", "running")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise fail("container object name", name, "letters, digits, dots, dashes and one :tag")
        if state not in STATES[:2]:
            raise fail("container object state", state, "created or running")
        spec = parse_container(
            {key: value for key, value in data.items() if key in CONTAINER_FIELDS}
        )
        if spec.user_namespace:
            raise fail(
                "container object user_namespace",
                True,
                "false: only an image's own root file system can be mapped",
            )
        if spec.kernel_modules:
            raise fail(
                "container object kernel_modules",
                True,
                "false: only images of the node's set are given them",
            )
        if spec.keep:
            raise fail(
                "container object keep",
                list(spec.keep),
                "none: only images of the node's set keep directories",
            )
        with self._lock:
            self._counter += 1
            entry = Entry(f"c{self._counter}", name, spec.to_wire())
            self._entries[entry.id] = entry
            self._save()
            try:
                self._make(entry, spec, data.get("mount"))
                if state == "running":
                    self._start(entry)
            except BaseException:
                self._remove(entry)
                raise
            return asdict(entry)

    def _make(self, entry: Entry, spec: ContainerSpec, mount: object) -> None:
        root = self._objects.acquire("mount", mount, entry.id)
        entry.parts.append(root)
        binds = []
        for wanted in spec.mounts:
            part = self._objects.acquire("mount", wanted.spec, entry.id)
            entry.parts.append(part)
            binds.append(
                oci.Bind(
                    self._objects.place(part), wanted.target, bool(wanted.spec.get("readonly"))
                )
            )
        process = self.runtime.create(entry.id, spec, Path(self._objects.place(root)), binds)
        entry.pid = process.pid
        entry.started = process.started
        entry.state = "created"
        self._save()

    def _start(self, entry: Entry) -> None:
        self.runtime.start(entry.id)
        entry.state = "running"
        self._save()

    def set_state(self, name: str, state: object) -> dict[str, Any]:
        """Starts a created one ("running"), or stops one ("exited": asked first, then killed).
        Raises Refused, InputError."""
        with self._lock:
            entry = self._get(name)
            if state == "running" and entry.state == "created":
                self._start(entry)
            elif state == "exited" and entry.state in ("created", "running"):
                self._stop(entry)
            elif state not in STATES:
                raise fail("container object state", state, "running or exited")
            elif state != entry.state:
                raise Refused(
                    f"cannot make container {name} {state}: it is {entry.state}",
                    hint="a container object runs once",
                )
            return asdict(entry)

    def _stop(self, entry: Entry) -> None:
        entry.state = "stopping"
        self._save()
        by_itself = self.runtime.stop(entry.process, entry.spec)
        entry.status = self.runtime.exit_status(entry.process)
        entry.state = "exited" if by_itself else "dead"
        self._save()

    def delete(self, name: str) -> None:
        """Stops one and takes it away with what it alone held. Raises InputError, OperationFailed
        if something stays."""
        with self._lock:
            entry = self._get(name)
            if alive(entry.process):
                self._stop(entry)
            self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        self.runtime.delete(entry.id, entry.process if entry.process != NO_PROCESS else None)
        self._objects.release_all(entry.id)
        tree.remove(self.runtime.bundle(entry.id))
        del self._entries[entry.id]
        self._save()
