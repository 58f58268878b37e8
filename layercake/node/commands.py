"""What the head asks many nodes for at once: to run a command, and to write a file.

Such a request stands in the node's desired state for as long as somebody waits for its answer. When
it is gone from there, what it began is killed. Each is begun once: an agent that takes over from
another one finds its mark, and does not run a command again. The mark says which process it is: one
whose agent was killed is ended by the next one, as nobody gets its answer.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from imageapi.node.container import execute, follow
from imageapi.node.container.execute import ExecContext
from imageapi.node.container.process import Process
from imageapi.node.imageset.imageset import ImageSet
from imageapi.spec.fields import command_words
from layercake.base.files import is_plain_path
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.node.files import RunningImage, running, within
from minos.agent.files.manifest import Entry
from minos.agent.files.writer import Root

AT_ONCE = 8
"""Requests that a node carries out side by side."""
MAX_OUTPUT = 1 << 20
"""Bytes of a command's output that a node keeps, whatever the head asks for."""
MAX_S = 3600.0
_KEY = re.compile(r"[0-9a-f]{8,64}")
Answer = Callable[[Mapping[str, Any]], None]
Content = Callable[[str], bytes]
"""Fetches the content of a request, by its BLAKE2b digest."""


class Commands:
    """The requests under way. `root` is where files of the node itself are written to, None for a
    machine that is not ours."""

    def __init__(
        self, images: ImageSet, run: Path, content: Content, root: Path | None = None
    ) -> None:
        self._images = images
        self._marks = run / "commands"
        self._content = content
        self._root = root
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}

    def begin(self, request: Mapping[str, Any], answer: Answer) -> None:
        """Begins what is asked for on a thread of its own. It answers once, unless it is called
        off."""
        key = str(request.get("key", ""))
        try:
            stop = self._admit(key)
        except (LayercakeError, OSError) as error:
            answer({"ok": False, "error": str(error)})
            return
        threading.Thread(
            target=self._carry_out,
            args=(key, stop, dict(request), answer),
            name="command",
            daemon=True,
        ).start()

    def cancel_others(self, keys: Set[str]) -> None:
        """Calls off all but the requests with these keys, and forgets that they were begun."""
        with self._lock:
            for key in self._running.keys() - keys:
                self._running.pop(key).set()
        with contextlib.suppress(FileNotFoundError):
            for mark in self._marks.iterdir():
                if mark.name not in keys:
                    self._end_left(mark)
                    mark.unlink(missing_ok=True)

    def _end_left(self, mark: Path) -> None:
        """Ends what an agent before this one has begun."""
        with self._lock:
            if mark.name in self._running:
                return
        with contextlib.suppress(OSError, ValueError):
            pid, _, started = mark.read_text().partition(" ")
            execute.kill_left(Process(int(pid), int(started)))

    def _admit(self, key: str) -> threading.Event:
        """Raises InputError, OperationFailed, OSError for a request that is not begun."""
        if not _KEY.fullmatch(key):
            raise InputError("cannot do this: the request has no key")
        self._marks.mkdir(mode=0o700, exist_ok=True)
        with self._lock:
            if len(self._running) >= AT_ONCE:
                raise OperationFailed(
                    f"cannot do this now: this node is busy with {AT_ONCE} requests already"
                )
            try:
                os.close(os.open(self._marks / key, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                begun_before = key not in self._running
            else:
                stop = self._running[key] = threading.Event()
                return stop
        if begun_before:
            self._end_left(self._marks / key)
        raise OperationFailed(
            "cannot say how it ended: the agent that began it was replaced meanwhile"
        )

    def _carry_out(
        self, key: str, stop: threading.Event, request: Mapping[str, Any], answer: Answer
    ) -> None:
        work = self._execute if request.get("kind") == "exec" else self._copy
        try:
            said = {"ok": True, **work(key, request, stop.is_set)}
        except (LayercakeError, OSError) as error:
            said = {"ok": False, "error": str(error)}
        except Exception as error:  # noqa: BLE001 (the head is told: it waits for an answer)
            said = {"ok": False, "error": f"cannot do this: {type(error).__name__}: {error}"}
        with self._lock:
            self._running.pop(key, None)
        if not stop.is_set():
            answer(said)

    def _execute(
        self, key: str, request: Mapping[str, Any], gone: Callable[[], bool]
    ) -> dict[str, Any]:
        """Runs a command. What it writes beyond `most` bytes is read and dropped, so that it can
        end."""
        command = command_words(request.get("command"), "command")
        timeout = min(max(float(request.get("timeout_s", 60.0)), 0.1), MAX_S)
        left = min(max(int(request.get("most", MAX_OUTPUT)), 0), MAX_OUTPUT)
        container = str(request.get("container") or "")
        place = self._images.place(container) if container else ExecContext()
        kept: dict[str, list[bytes]] = {"out": [], "err": []}
        cut = 0
        status: int | None = None
        begun = time.monotonic()

        def note(process: Process) -> None:
            (self._marks / key).write_text(f"{process.pid} {process.started}")

        with contextlib.closing(follow.run(place, command, timeout, gone, note)) as outputs:
            for kind, data in outputs:
                if kind in kept:
                    kept[kind].append(data[:left])
                    cut += len(data) - len(data[:left])
                    left -= len(data[:left])
                elif kind == "exit":
                    status = int(data)
        return {
            "exit": status,
            "seconds": round(time.monotonic() - begun, 3),
            "cut": cut,
            **{kind: base64.b64encode(b"".join(parts)).decode() for kind, parts in kept.items()},
        }

    def _copy(
        self, key: str, request: Mapping[str, Any], gone: Callable[[], bool]
    ) -> dict[str, Any]:
        """Writes a file in one step. No link in its path leads out of its root."""
        path = str(request["path"])
        if not is_plain_path(path):
            raise InputError("cannot write the file: its path is not absolute, or not plain")
        container = str(request.get("container") or "")
        if not container and self._root is None:
            raise OperationFailed(
                "cannot write the file: this agent runs beside a system that is not ours"
            )
        data = self._content(_digest(request["digest"]))
        entry = Entry(
            (),
            path,
            data,
            mode=int(request.get("mode", 0o644)) & 0o7777,
            owner=str(request.get("owner") or "root"),
            group=str(request.get("group") or "root"),
        )
        changed = []

        def write(root: Root) -> None:
            changed.append(root.write(entry))

        if gone():
            raise OperationFailed("cannot write the file: it was called off")
        if container:
            self._image(container).inside(write)
        elif self._root is not None:
            within(self._root, 0, write)
        return {"changed": changed != [False]}

    def _image(self, name: str) -> RunningImage:
        """A running image. Raises NotFound, OperationFailed."""
        newest = self._images.newest(name)
        found = next((r for r in running(self._images) if r.id == newest.id), None)
        if found is None:
            raise OperationFailed(f"cannot write the file: image {name} does not run")
        return found


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise InputError("cannot write the file: the request has no digest")
    return value
