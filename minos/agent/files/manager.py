"""Keeps the node's files as the head wants them: fetched when they are others, written before an
image starts, and into images that run where the file says what is to be done then.

RUN/files.json      what was fetched last, for an agent that starts again (it may hold secrets:
root's only)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from layercake.base.files import read_json, write_json
from layercake.base.text import count_of, parse_json
from layercake.kraken.backoff import backoff
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from layercake.kraken.wire import bearer
from minos.agent.files.manifest import MINOS, Entry, Manifest, named, parse, to_wire
from minos.agent.files.writer import Root
from minos.agent.head_link.connection import HeadConnection
from minos.agent.head_link.outbox import EventSink
from minos.agent.state import Config, Session
from minos.events import FILES, FILES_FAILED, FILES_WRITTEN

RECORD = "files.json"
RETRY_FIRST = 0.5
RETRY_MAX = 30.0


class Running(Protocol):
    """An image that runs, as far as its files go (layercake/node/wiring.py)."""

    @property
    def id(self) -> str: ...
    @property
    def image(self) -> str: ...

    def inside(self, work: Callable[[Root], None]) -> None:
        """Does something with its root file system. Raises LayercakeError, OSError."""

    def act(self, action: str) -> None:
        """Reloads a unit, sends a signal, or has the image restarted. Raises LayercakeError."""


Fetch = Callable[[Config, Session], Manifest]


def fetch(config: Config, session: Session) -> Manifest:
    """Asks the head. Raises Unreachable, OperationFailed."""
    connection = HeadConnection(config, session)
    try:
        status, data = connection.request(
            "GET",
            "/node/v1/files",
            {"Authorization": bearer(session.key, config.node_bytes, session.number)},
        )
    finally:
        connection.close()
    if status >= 500:
        raise Unreachable(f"cannot get the node's files: the head answers {status}")
    if status != 200:
        raise OperationFailed(f"cannot get the node's files: the head answers {status}")
    return parse(parse_json(data))


class FileManager:
    """`running` gives the images that run. `own` is the root of minOS, None on a machine that runs
    something else. `serve` takes what the metadata service has to say, to all images and to
    some."""

    def __init__(
        self,
        config: Config,
        event: EventSink,
        running: Callable[[], Iterable[Running]],
        own: Path | None,
        serve: Callable[[Mapping[str, bytes], Mapping[str, Mapping[str, bytes]]], None],
        get: Fetch = fetch,
    ) -> None:
        self._config = config
        self._event = event
        self._running = running
        self._own = own
        self._get = get
        self._serve = serve
        self._file = config.run / RECORD
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._wanted = ""
        self._session: Session | None = None
        self._has: Manifest | None = None
        self._written: dict[str, dict[str, str]] = {}
        self._wrong: list[str] = []
        self._said: tuple[str, list[str], list[str]] | None = None
        self._thread: threading.Thread | None = None
        self._load()

    def _load(self) -> None:
        try:
            data = read_json(self._file)
            if isinstance(data, dict):
                written = dict(data["written"])
                self._has = parse(data["manifest"])
                self._written = written
        except (ValueError, KeyError, TypeError, OperationFailed):
            self._has = None  # the head knows all that stood there

    def _save(self) -> None:
        if self._has is not None:
            write_json(self._file, {"manifest": to_wire(self._has), "written": self._written})

    # ---- from the loop
    # -----

    def set_desired(self, document: Mapping[str, Any], session: Session) -> None:
        """Takes over which files the head has for this node. An older head says nothing of them."""
        section = document.get("files")
        if not isinstance(section, Mapping) or not isinstance(mark := section.get("mark"), str):
            return
        self._session = session
        self._wanted = mark
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="files", daemon=True)
            self._thread.start()
        self._wake.set()

    def images_started(self) -> None:
        """Images were started: what has become other since they were made ready is brought
        about."""
        if self._thread is not None:
            self._wake.set()

    def report_again(self) -> None:
        """Tells the head again how the files are."""
        if self._has is not None:
            self._event(
                FILES,
                count_of(len(self._has.entries), "file"),
                mark=self._has.mark,
                waiting=self._waiting(),
                errors=self._wrong,
            )

    # ---- from the worker: an image is about to start
    # ---------------------------------------------------------------------------

    def ready(self) -> None:
        """Writes the files of minOS itself, as they are wanted now: what is done before images
        start may need them. Raises as `give`."""
        if self._own is not None and (self._wanted or self._has is not None):
            with self._turn:
                self._bring_about(self._current())

    def give(self, instance: str, image: str, root: Root) -> None:
        """Writes an image's files into its root. Raises OperationFailed for one that there is not
        and cannot be had, and Unreachable if nothing is known of the files and the head cannot be
        asked."""
        if not self._wanted and self._has is None:
            return  # a head that knows of no files
        with self._turn:
            manifest = self._current()
            digests = {}
            for path, entry in manifest.chosen(image).items():
                if entry.error:
                    raise OperationFailed(
                        f"cannot give image {image} its file {path}: {entry.error}",
                        hint="correct it on the head, and apply the inventory again",
                    )
                root.write(entry)
                digests[path] = entry.digest
            directory = self._config.run / "containers"
            self._written = {
                known: had for known, had in self._written.items() if (directory / known).is_dir()
            }
            self._written[instance] = digests
            self._save()

    def _current(self) -> Manifest:
        """What is wanted now, or, if the head cannot be asked, what was wanted last. Raises
        Unreachable, OperationFailed."""
        if self._has is None or (self._wanted and self._has.mark != self._wanted):
            try:
                return self._fetch()
            except (LayercakeError, OSError) as error:
                if self._has is None:
                    raise Unreachable(str(error)) from None
        return self._has

    def _fetch(self) -> Manifest:
        session = self._session
        if session is None:
            raise Unreachable("cannot get the node's files: this node has not joined")
        manifest = self._get(self._config, session).over(self._has)
        self._has = manifest
        self._wanted = (
            manifest.mark
        )  # it may be newer than what was asked for: then the head says that one next
        self._save()
        return manifest

    # ---- the thread
    # -----

    def _run(self) -> None:
        failures = 0
        while True:
            self._wake.wait()
            self._wake.clear()
            try:
                self.work()
                failures = 0
            except (LayercakeError, OSError) as error:
                failures += 1
                if failures in (1, 8) or failures % 64 == 0:
                    self._event(FILES_FAILED, f"{error}; it is tried again")
                time.sleep(backoff(failures, RETRY_FIRST, RETRY_MAX))
                self._wake.set()

    def work(self) -> None:
        """Fetches what is wanted, if it is not there, and brings it about. Raises LayercakeError,
        OSError."""
        with self._turn:
            manifest = self._has
            if manifest is None or manifest.mark != self._wanted:
                manifest = self._fetch()
            self._wrong = [
                f"{entry.path}: {entry.error}" for entry in manifest.entries if entry.error
            ]
            if self._own is not None:
                try:
                    self._bring_about(manifest)
                except OperationFailed as error:
                    self._failed(str(error))
            for one in self._running():
                if one.id in self._written:
                    self._change(one, manifest, self._written[one.id])
            self._tell_news()

    def _bring_about(self, manifest: Manifest) -> None:
        """What is minOS's own: its files, and what it tells its images. Raises OperationFailed
        where it cannot tell them anything: somebody else would."""
        self._write_own(manifest)
        self._serve(*manifest.metadata())

    def _write_own(self, manifest: Manifest) -> None:
        """The files of minOS itself."""
        assert self._own is not None  # noqa: S101 (for the type checker)
        root = Root(self._own)
        changed = []
        try:
            for entry in manifest.chosen(MINOS).values():
                try:
                    if not entry.error and root.write(entry):
                        changed.append(entry)
                except OperationFailed as error:
                    self._failed(f"minOS: {error}")
        finally:
            root.close()
        if changed:
            self._event(FILES_WRITTEN, f"minOS: {named(changed)}")

    def _change(self, one: Running, manifest: Manifest, has: dict[str, str]) -> None:
        """Writes what is other than when an image was started, where the file says what is to be
        done then, and does that."""
        new = [
            e
            for path, e in manifest.chosen(one.image).items()
            if not e.error and e.on_change and e.digest != has.get(path)
        ]
        if not new:
            return
        written = self._write_inside(one, new)
        if not written:
            return
        has.update({entry.path: entry.digest for entry in written})
        done = self._act(one, written)
        self._save()
        self._event(
            FILES_WRITTEN,
            f"image {one.image}: {named(written)}" + (f"; {', '.join(done)}" if done else ""),
            image=one.image,
            paths=[entry.path for entry in written][:50],
            done=done,
        )

    def _write_inside(self, one: Running, entries: Iterable[Entry]) -> list[Entry]:
        """Writes files into an image that runs; those that could be written."""
        written: list[Entry] = []

        def write(root: Root) -> None:
            for entry in entries:
                try:
                    root.write(entry)
                except OperationFailed as error:
                    self._failed(f"image {one.image}: {error}")
                else:
                    written.append(entry)

        try:
            one.inside(write)
        except (LayercakeError, OSError) as error:
            self._failed(f"image {one.image}: {error}")
            return []
        return written

    def _act(self, one: Running, written: Iterable[Entry]) -> list[str]:
        """Does what is to be done after these files were written, each once; what could be done."""
        done = []
        for action in dict.fromkeys(entry.on_change for entry in written):
            if action == "write":
                continue
            try:
                one.act(action)
                done.append(action)
            except (LayercakeError, OSError) as error:
                self._failed(f"image {one.image}: {error}")
        return done

    def _tell_news(self) -> None:
        news = (self._has.mark if self._has else "", self._waiting(), self._wrong)
        if news != self._said:
            self._said = news
            self.report_again()

    def _failed(self, text: str) -> None:
        self._wrong.append(text)
        self._event(FILES_FAILED, text)

    def _waiting(self) -> list[str]:
        """Files that running images get when they are started next."""
        if self._has is None:
            return []
        return [
            f"{one.image}:{path}"
            for one in self._running()
            if one.id in self._written
            for path, entry in self._has.chosen(one.image).items()
            if entry.digest != self._written[one.id].get(path)
        ]
